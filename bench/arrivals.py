"""Jobs that come to a house as a timetable says, and what became of them.

Each comes as its survey would leave it: one row and its plan in Postgres, its packed speech in
storage, its place in the queue. Its arrival is Postgres' time at that moment. Times to the result
are by Postgres' stamps, times to the service by the worker's log: both clocks are this machine's.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uuid_utils.compat as uuid_utils
from sqlalchemy import func, insert, select

from bench.clips import Clip
from bench.picks import Begun, read_windows
from pipeline.job import TRANSCRIBE, State
from pipeline.parts import Parts, open_parts
from pipeline.scheduling.policies import Policy, Waiting
from pipeline.scheduling.work import bucket_of
from pipeline.settings import read_settings
from pipeline.store import partials, policies, tables
from pipeline.store.session import clock_ms, transaction

LOOK_S = 0.25
PATIENCE_S = 600.0


@dataclass(frozen=True)
class Came:
    """A job that came, and its end. Times are epoch seconds."""

    job_id: str
    clip: Clip
    arrival_ms: int
    """As ranks count it; ms of Postgres time."""
    seen_s: float
    """When a worker could take it."""
    ended_s: float
    windows: tuple[Begun, ...]

    @property
    def began_s(self) -> float:
        """An engine began to hear it."""
        return min(window.began_s for window in self.windows)


@dataclass(frozen=True)
class _Sent:
    clip: Clip
    place: Waiting
    seen_s: float


class Arrivals:
    """Brings jobs to workers that are up and log at `debug`."""

    def __init__(self, parts: Parts, log_lines: Callable[[], Iterable[str]]) -> None:
        """`log_lines`: what the transcribe worker has logged so far."""
        self.parts, self._log_lines = parts, log_lines
        self._queue = parts.queues[TRANSCRIBE.name]

    @classmethod
    def to(cls, up: dict[str, Any]) -> Arrivals:
        """To a house, as `fairscribe up --json` tells of it."""
        names = {"HOME": "home", "DATABASE_URL": "database_url", "REDIS_URL": "redis_url"}
        environ = {f"FAIRSCRIBE_{name}": up[key] for name, key in names.items()}
        log = Path(up["home"]) / "logs" / "transcribe.log"
        return cls(open_parts(read_settings(environ)), lambda: log.read_text().splitlines())

    def follow(self, policy: Policy, why: str) -> None:
        """Have all work by `policy`, from the next claim on."""
        with transaction(self.parts.store) as c:
            policies.change_policy(c, policy, why)
        for queue in self.parts.queues.values():
            queue.set_policy(policy)

    def at_once(self, clips: Sequence[Clip], waited_s: Sequence[float] = ()) -> list[Came]:
        """All in the queue at one moment, as if each had waited so long; returns at their end.

        They count as seen when the first of them is given a slot: an idle worker takes a quarter of
        a second to look.
        """
        stored = [self._store(clip) for clip in clips]
        with transaction(self.parts.store) as c:
            now_ms = clock_ms(c)
            waits = waited_s or [0.0] * len(clips)
            places = [
                self._insert(c, clip, job_id, now_ms - round(waited * 1000))
                for clip, job_id, waited in zip(clips, stored, waits, strict=True)
            ]
        self._queue.enqueue(places)
        came = self._ended([_Sent(*one, 0.0) for one in zip(clips, places, strict=True)])
        first_s = min(window.given_s for one in came for window in one.windows)
        return [replace(one, seen_s=first_s) for one in came]

    def as_they_come(self, clips: Sequence[Clip], at_s: Sequence[float]) -> list[Came]:
        """Each at its moment, seconds from the beginning; returns at their end."""
        stored = [self._store(clip) for clip in clips]
        sent, began_s = [], time.monotonic()
        for clip, job_id, due_s in zip(clips, stored, at_s, strict=True):
            time.sleep(max(0.0, began_s + due_s - time.monotonic()))
            with transaction(self.parts.store) as c:
                place = self._insert(c, clip, job_id, clock_ms(c))
            self._queue.enqueue([place])
            sent.append(_Sent(clip, place, time.time()))
        return self._ended(sent)

    # -- in ---------------------------------------------------------------------------------

    def _store(self, clip: Clip) -> str:
        """Its packed speech in storage; the id it will have."""
        job_id = str(uuid_utils.uuid7())
        key = _key(job_id)
        self.parts.storage.put(key, [clip.packed or bytes(1)], 10**9)
        if clip.packed is None:
            os.truncate(self.parts.settings.home / "storage" / key, clip.size_bytes)
        return job_id

    def _insert(self, c: Any, clip: Clip, job_id: str, arrival_ms: int) -> Waiting:
        """Its row and its plan. Not by the store's own moves, which are six statements: they would
        take time from the engine that is measured.
        """
        plan, bucket = clip.plan, bucket_of(clip.work_s)
        row = {
            "id": uuid.UUID(job_id),
            "file_name": clip.name,
            "storage_key": f"recordings/{job_id}",
            "size_bytes": 1,
            "sha256": "0" * 64,
            "state": State.SURVEYED.value,
            "arrival_ms": arrival_ms,
            "bucket": bucket,
            "duration_s": plan.duration_s,
            "duration_source": "decode",
            "duration_exact": True,
            "container": "wav",
            "codec": "pcm_s16le",
            "sample_rate_hz": 16_000,
            "channels": 1,
            "speech_s": plan.speech_s,
            "plan_hash": plan.plan_hash,
            "windows_total": len(plan.windows),
        }
        c.execute(insert(tables.jobs).values(**row))
        partials.keep_plan(c, job_id, plan, _key(job_id))
        return Waiting(job_id, bucket, arrival_ms)

    # -- out --------------------------------------------------------------------------------

    def _ended(self, sent: Sequence[_Sent]) -> list[Came]:
        """What became of them, once all have ended. Exits when one failed."""
        ends = self._wait([one.place.job_id for one in sent])
        heard: dict[str, list[Begun]] = {job_id: [] for job_id in ends}
        for window in read_windows(self._log_lines()):
            if window.job_id in heard:
                heard[window.job_id].append(window)
        came = []
        for one in sent:
            job_id, arrival_ms = one.place.job_id, one.place.arrival_ms
            windows = tuple(heard[job_id])
            came.append(Came(job_id, one.clip, arrival_ms, one.seen_s, ends[job_id], windows))
        return came

    def _wait(self, job_ids: Sequence[str]) -> dict[str, float]:
        at, ids = tables.jobs.c, [uuid.UUID(job_id) for job_id in job_ids]
        ended_s = func.extract("epoch", at.completed_at)
        query = select(at.id, at.state, ended_s).where(at.id.in_(ids), at.completed_at.is_not(None))
        waits = select(func.count()).where(at.id.in_(ids), at.completed_at.is_(None))
        failed = select(func.count()).where(at.id.in_(ids), at.state == State.FAILED.value)
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            with transaction(self.parts.store) as c:
                if c.execute(failed).scalar_one():
                    raise SystemExit("A job of the experiment failed.")
                if not c.execute(waits).scalar_one():
                    return {str(row.id): float(row[2]) for row in c.execute(query)}
            if time.monotonic() > deadline_s:
                raise SystemExit(f"The jobs have not ended in {PATIENCE_S:.0f} s.")
            time.sleep(LOOK_S)


def _key(job_id: str) -> str:
    return f"packed/{job_id}-1"
