"""What must hold when everything is well again: asked of Postgres, Redis, storage and the machine.

A witness in the throw-away database writes down every change of a job's state or attempt and every
transcript, so that a result accepted twice is seen even where the second one covered the first.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import psycopg
import redis

from bench.chaos_house import House
from bench.chaos_jobs import OURS, Feed, heard_in
from bench.chaos_striker import Flushed, Killed
from pipeline.intake.storage import Storage
from pipeline.job import STAGES
from pipeline.queue import keys

WITNESS = """
    CREATE TABLE chaos_seen (
        n bigserial PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp(),
        what text NOT NULL, job_id uuid NOT NULL, attempt int NOT NULL, state text);
    CREATE INDEX ON chaos_seen (job_id);
    CREATE FUNCTION chaos_job() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO chaos_seen (what, job_id, attempt, state)
        VALUES ('job', NEW.id, NEW.attempt, NEW.state);
        RETURN NULL; END $$;
    CREATE FUNCTION chaos_transcript() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO chaos_seen (what, job_id, attempt)
        VALUES ('transcript', NEW.job_id, NEW.attempt);
        RETURN NULL; END $$;
    CREATE TRIGGER chaos_job AFTER UPDATE ON jobs FOR EACH ROW
        WHEN (OLD.state IS DISTINCT FROM NEW.state OR OLD.attempt IS DISTINCT FROM NEW.attempt
            OR NEW.state = 'completed' AND OLD.completed_at IS DISTINCT FROM NEW.completed_at)
        EXECUTE FUNCTION chaos_job();
    CREATE TRIGGER chaos_transcript AFTER INSERT OR UPDATE ON transcripts FOR EACH ROW
        EXECUTE FUNCTION chaos_transcript();
"""

LOOK_S = 0.2
TOLD_S = 0.1
"""A claim's answer is written down this long after it came, at most."""

TORN_SHARE = 0.2
"""Of the jobs in live hands when Redis was emptied so many may have to begin again: on a busy
machine one fault is not over when the next begins. Without the rule of re-assertion all have to."""


class Leases(threading.Thread):
    """Looks at Redis while it all goes on: which claim holds which job, and when that was seen."""

    def __init__(self, house: House) -> None:
        super().__init__(name="leases", daemon=True)
        self._house, self._done = house, threading.Event()
        self._seen: dict[tuple[str, str], float] = {}

    def stop(self) -> None:
        """Look no more."""
        self._done.set()
        self.join(10.0)

    def run(self) -> None:
        """See `threading.Thread`."""
        client = self._house.redis()
        while not self._done.wait(LOOK_S):
            with contextlib.suppress(redis.RedisError):
                for stage in STAGES:
                    owners = client.hgetall(keys.owner(stage.name)).items()
                    self._seen.update(dict.fromkeys(owners, time.monotonic()))

    def stranded(self) -> set[str]:
        """Jobs leased to a claim whose answer, heard by its worker, did not name them."""
        told: dict[str, tuple[float, list[str]]] = {}
        for notes in self._house.notes.glob("*.claims"):
            for line in notes.read_text().splitlines():
                at_s, token, *jobs = line.split()
                told[token] = float(at_s), jobs
        return {
            job_id
            for (job_id, token), seen_s in self._seen.items()
            if token in told and job_id not in told[token][1] and seen_s > told[token][0] + TOLD_S
        }


@dataclass
class Verdict:
    """What did not hold: ids, or words for what is left."""

    jobs: int = 0
    lost: list[str] = field(default_factory=list)
    """Accepted and not completed with the right words."""
    twice: list[str] = field(default_factory=list)
    """Accepted more than once, or of another attempt than the newest."""
    stuck: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    stranded: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    """In live hands when Redis was emptied, and begun again."""
    in_live_hands: int = 0

    @property
    def broken(self) -> list[str]:
        """Names of the invariants that do not hold."""
        names = ("lost", "twice", "stuck", "leftovers", "stranded")
        found = [name for name in names if getattr(self, name)]
        torn = len(self.torn) > max(1.0, TORN_SHARE * self.in_live_hands)
        return [*found, "torn"] if torn else found


def unquiet(house: House) -> list[str]:
    """What still goes on or lies about; empty once all is done."""
    with contextlib.closing(house.database()) as c:
        live = c.execute(
            "SELECT state, count(*) FROM jobs"
            " WHERE state NOT IN ('completed', 'failed', 'cancelled') GROUP BY state"
        ).fetchall()
    found = [f"{count} {state}" for state, count in live]  # numbers first: see `unfinished`
    with house.redis() as client:
        for stage in STAGES:
            for key in (keys.ready, keys.lease, keys.owner, keys.heads):
                name = key(stage.name)
                found += [f"redis {name}"] if client.exists(name) else []
            mortal = client.keys(keys.answer(stage.name, "*"))
            found += [f"redis {name} for ever" for name in mortal if client.ttl(name) == -1]
    return found + [f"artefact {key}" for key in _artefacts(house)]


def unfinished(left: list[str]) -> int:
    """Jobs that have not ended, of what `unquiet` says."""
    return sum(int(one.split()[0]) for one in left if one[0].isdigit())


def _artefacts(house: House) -> list[str]:
    """Packed speech that lies about; not what was laid down for a row that could not be put in."""
    keys_there = [key for key, _ in Storage(house.home / "storage").keys("packed")]
    ours = {key: key[len("packed/") : -len(OURS)] for key in keys_there if key.endswith(OURS)}
    question = "SELECT id::text FROM jobs WHERE id = ANY(%s::uuid[])"
    with contextlib.closing(house.database()) as c:
        rows = {row[0] for row in c.execute(question, (list(ours.values()),)).fetchall()}
    return [key for key in keys_there if key not in ours or ours[key] in rows]


def judge(house: House, feed: Feed, leases: Leases, flushes: list[Flushed]) -> Verdict:
    """Compare what became of every job with what was promised."""
    verdict = Verdict(stranded=sorted(leases.stranded()))
    with contextlib.closing(house.database()) as c:
        rows = c.execute(
            "SELECT id::text, file_name, state, jobs.attempt, error_code, transcripts.attempt,"
            " body->>'text' FROM jobs LEFT JOIN transcripts ON job_id = id"
        ).fetchall()
        seen = c.execute(
            "SELECT job_id::text, count(*) FILTER (WHERE what = 'job' AND state = 'completed'),"
            " count(*) FILTER (WHERE what = 'transcript') FROM chaos_seen GROUP BY job_id"
        ).fetchall()
        verdict.in_live_hands = sum(len(flush.attempts) for flush in flushes)
        for flush in flushes:
            verdict.torn += _begun_again(c, flush)
    verdict.jobs = len(rows)
    counts = {job_id: (completed, transcripts) for job_id, completed, transcripts in seen}
    verdict.lost = sorted(feed.accepted - {row[0] for row in rows})
    for job_id, name, state, attempt, error, accepted_attempt, text in rows:
        completed, transcripts = counts.get(job_id, (0, 0))
        if state in ("failed", "cancelled"):
            verdict.lost.append(f"{job_id} {state} {error}")
        elif state != "completed":
            verdict.stuck.append(f"{job_id} {state}")
        elif heard_in(text or "") != feed.said.get(job_id, feed.said_in_file.get(name)):
            verdict.lost.append(f"{job_id} says {(text or '')[:80]!r}")
        if completed > 1 or transcripts > 1 or accepted_attempt not in (None, attempt):
            verdict.twice.append(f"{job_id} {completed} {transcripts} {accepted_attempt}/{attempt}")
    return verdict


def _begun_again(c: psycopg.Connection, flush: Flushed) -> list[str]:
    question = (
        "SELECT 1 FROM chaos_seen WHERE job_id::text = %s AND attempt > %s AND what = 'job'"
        " AND at <= %s"
    )
    return [
        job_id
        for job_id, attempt in flush.attempts.items()
        if c.execute(question, (job_id, attempt, flush.until)).fetchone()
    ]


def recoveries(house: House, kills: list[Killed], *, calm: bool) -> list[float]:
    """Seconds from each kill until each job then in hand waited again or was granted again."""
    question = (
        "SELECT extract(epoch FROM min(at) - %s) FROM chaos_seen WHERE job_id::text = %s"
        " AND what = 'job' AND at > %s AND (attempt > %s OR state = 'surveyed')"
    )
    found: list[Any] = []
    with contextlib.closing(house.database()) as c:
        for kill in (kill for kill in kills if kill.calm is calm):
            for job_id, attempt in kill.attempts.items():
                row = c.execute(question, (kill.at, job_id, kill.at, attempt)).fetchone()
                found += [float(row[0])] if row and row[0] is not None else []
    return sorted(found)
