"""A process ends at each named point as by kill -9; what it left comes right by itself, and soon.

One row a point (pipeline/crash_points.py): which part dies there, what brings it there, what has to
become of the job. A part is a real process of its own (tests/forked_parts.py), and what is left is
looked for in Postgres, Redis and storage.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from sqlalchemy import select, text

from pipeline import crash_points
from pipeline.crash_points import EXIT_CODE, POINTS
from pipeline.handover import ERRANDS_QUEUE
from pipeline.job import STAGES, SURVEY, TRANSCRIBE, JobView, State
from pipeline.parts import Parts, open_parts
from pipeline.queue import keys
from pipeline.queue.redis_queue import connect
from pipeline.settings import read_settings
from pipeline.steps.accept import Upload, accept, accept_urls, hand_over, new_job_id
from pipeline.steps.tidy import tidy
from pipeline.store import jobs, tables, views
from pipeline.store.session import transaction
from tests import driven
from tests.forked_parts import ForkedParts, Part, forked_parts
from tests.lines import eventually, surveyed_job
from tests.sounds import joined, silence, voice, wav
from tests.web import serving

ROOT = Path(__file__).resolve().parents[2]
LEASE_S = 1.0
SOUND = wav(joined([voice(3), silence(1)]))
PULLERS = ("survey", "transcribe")
ALL = ("errands", *PULLERS)


@dataclass
class House:
    """Parts that stand sound, and one that is to die."""

    parts: Parts
    forked: ForkedParts
    caretaker: Part
    """Keeps the queues true beside whoever dies, as any other worker would."""
    url: str
    """Where there is a recording to fetch."""
    lease_s: float
    standing: dict[str, Part] = field(default_factory=dict)
    doomed: Part = None  # type: ignore[assignment]

    def stand(self, *names: str) -> None:
        """These parts stand; does not wait for them."""
        for name in set(names) - set(self.standing):
            self.standing[name] = self.forked.start(name, wait=False)

    def only(self, *names: str) -> None:
        """These parts stand and work, and no other."""
        for name in set(self.standing) - set(names):
            self.standing.pop(name).kill()
        self.stand(*names)
        for part in self.standing.values():
            part.until(part.ready, 90, "works")

    def view(self, job_id: str) -> JobView:
        with transaction(self.parts.store) as c:
            found = views.view(c, job_id)
        assert found is not None
        return found

    def ids(self) -> list[str]:
        with transaction(self.parts.store) as c:
            return [str(row.id) for row in c.execute(select(tables.jobs.c.id))]

    def owners(self) -> list[str]:
        """Who holds leases: tokens, which begin with a process id."""
        redis = self.parts.queues[SURVEY.name]._redis
        return [o for stage in STAGES for o in redis.hvals(keys.owner(stage.name))]

    def nothing_of_the_dead(self) -> bool:
        """No lease is held for the process that died."""
        return not any(owner.startswith(f"{self.doomed.pid}-") for owner in self.owners())

    def sweep(self) -> None:
        """Have the sweeper look now, as if a message had been lost for long."""
        with transaction(self.parts.store) as c:
            c.execute(text("UPDATE jobs SET updated_at = updated_at - interval '31 seconds'"))
        self.parts.handover._celery.send_task("fairscribe.sweep", queue=ERRANDS_QUEUE)

    def nothing_left(self) -> None:
        """Redis is empty; once `tidy` looked, so is storage but for recordings of jobs."""
        queues = self.parts.queues.values()
        eventually(lambda: all(q.counts() == (0, 0) for q in queues) and not self.owners(), 10)
        for file in (self.parts.settings.home / "storage").rglob("*"):
            os.utime(file, (0, 0))
        tidy(self.parts.store, self.parts.storage)
        assert self.parts.storage.keys("packed") == []
        with transaction(self.parts.store) as c:
            assert not c.execute(select(tables.windows.c.job_id)).all()
            rows = c.execute(select(tables.jobs.c.storage_key, tables.jobs.c.size_bytes)).all()
        kept = {key for key, _ in self.parts.storage.keys("recordings")}
        assert kept <= {row.storage_key for row in rows}


@contextmanager
def opened(servers: SimpleNamespace, folder: Path, lease_s: float) -> Iterator[House]:
    environ = {
        "FAIRSCRIBE_HOME": str(folder / "home"),
        "FAIRSCRIBE_DATABASE_URL": servers.database_url,
        "FAIRSCRIBE_REDIS_URL": servers.redis_url,
        "FAIRSCRIBE_ENGINE": "echo",
        "FAIRSCRIBE_URL_PRIVATE": "true",
        "FAIRSCRIBE_LEASE_S": str(lease_s),
        "FAIRSCRIBE_RENEW_S": str(lease_s / 3),
    }
    parts = open_parts(read_settings(environ))
    _empty(parts)
    with forked_parts(folder / "parts", environ) as forked, serving() as web:
        url = web.page("/call.wav", SOUND)
        yield House(parts, forked, forked.start("caretaker"), url, lease_s)
    parts.store.dispose()


@pytest.fixture(scope="module")
def house(servers: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with opened(servers, tmp_path_factory.mktemp("crashes"), LEASE_S) as found:
        yield found


def _empty(parts: Parts) -> None:
    with transaction(parts.store) as c:
        c.execute(text("TRUNCATE jobs, submissions CASCADE"))
    connect(str(parts.settings.redis_url)).flushdb()


# -- what brings a part to its point ------------------------------------------------------------


def uploaded(house: House) -> str:
    """Accepted and handed over."""
    parts = house.parts
    accepted = accept(parts.store, parts.storage, Upload("call.wav", [SOUND]), 10**9)
    hand_over(parts.handover, [accepted])
    return accepted.job_id


def sent(house: House) -> None:
    """Sent to the API, which does not live to answer."""
    with pytest.raises(httpx.TransportError):
        _post(house.doomed)


def _post(api: Part) -> httpx.Response:
    files = {"files": ("call.wav", SOUND)}
    return httpx.post(f"{api.url}/v1/jobs", files=files, timeout=20, trust_env=False)


def named_by_its_url(house: House) -> str:
    job_id = new_job_id()
    accept_urls(house.parts.store, {job_id: house.url}, {})
    house.parts.handover.fetch([job_id])
    return job_id


def waits(windows: int = 1) -> Callable[[House], str]:
    """Waits for an engine."""
    return lambda house: surveyed_job(house.parts, windows=windows)


def drained(house: House) -> str:
    """Has windows left when its worker is told to stop."""
    job_id = surveyed_job(house.parts, windows=8)
    eventually(lambda: house.view(job_id).progress)
    house.doomed.terminate()
    return job_id


def in_the_outbox(house: House) -> str:
    """Committed and not in Redis; the sound caretaker looks away."""
    _pause(house.caretaker)
    return surveyed_job(house.parts, queue=False)


def left_by_its_worker(house: House) -> str:
    """Its lease runs out at once; the sound caretaker looks away, the doomed one does not."""
    ticks = house.doomed.folder / "ticks"
    ticked = int(house.lease_s) + 2  # before that it trusts no lease to have run out
    eventually(lambda: ticks.exists() and int(ticks.read_text()) >= ticked, 60)
    _pause(house.caretaker)
    job_id = surveyed_job(house.parts)
    queue = house.parts.queues[TRANSCRIBE.name]
    queue.lease_ms = 1
    assert [job.job_id for job in queue.claim(1).jobs] == [job_id]
    queue.lease_ms = int(house.lease_s * 1000)
    with transaction(house.parts.store) as c:
        jobs.grant(c, TRANSCRIBE, [job_id], "dead", "echo")
    return job_id


def _pause(caretaker: Part) -> None:
    (caretaker.folder / "pause").touch()


def asked(method: str, path: str, given: Callable[[House], str]) -> Callable[[House], str]:
    """Somebody asks the API for something of a job; it does not live to answer."""

    def ask(house: House) -> str:
        job_id = given(house)
        with pytest.raises(httpx.TransportError):
            _ask(house.doomed, method, path, job_id)
        return job_id

    return ask


def _ask(api: Part, method: str, path: str, job_id: str) -> httpx.Response:
    url = f"{api.url}/v1/jobs/{job_id}{path}"
    return httpx.request(method, url, timeout=20, trust_env=False)


def stored(house: House) -> str:
    """Waits for its survey."""
    job_id = driven.received(house.parts)
    driven.probed(house.parts, job_id)
    return job_id


def failed(house: House) -> str:
    parts = house.parts
    accepted = accept(parts.store, parts.storage, Upload("call.wav", [SOUND]), 10**9)
    driven.failed(parts, accepted.job_id)
    return accepted.job_id


# -- what is done about it, and what has to become of it ------------------------------------------


def nothing(house: House, job_id: str) -> str:
    return job_id


def swept(house: House, job_id: str) -> str:
    """Its message is lost, and the sweeper notices; within 40 s of its last sign by itself."""
    if job_id is None:
        (job_id,) = house.ids()
    house.sweep()
    return job_id


def sent_again(house: House, job_id: Any) -> str:
    """Who got no answer sends again; of the first there is a file at most."""
    assert house.ids() == []
    api = house.standing["api"]
    api.until(api.ready, 90, "works")
    (job,) = _post(api).json()["jobs"]
    return str(job["id"])


def erased_again(status: int) -> Callable[[House, str], str]:
    """Who got no answer asks again, and gets this one."""

    def ask(house: House, job_id: str) -> str:
        api = house.standing["api"]
        api.until(api.ready, 90, "works")
        assert _ask(api, "DELETE", "", job_id).status_code == status
        return job_id

    return ask


def completed_once(house: House, job_id: str) -> bool:
    return house.view(job_id).state is State.COMPLETED


def is_cancelled(house: House, job_id: str) -> bool:
    return house.view(job_id).state is State.CANCELLED


def is_erased(house: House, job_id: str) -> bool:
    return house.ids() == []


@dataclass(frozen=True)
class Crash:
    """One way to reach a point, and the way back."""

    point: str
    part: str
    """Which part dies."""
    reach: Callable[[House], Any]
    """Brings it to the point; the job's id, if anybody knows it."""
    end: Callable[[House, str], bool] = completed_once
    """Whether the job has come where it belongs."""
    again: Callable[[House, Any], str] = nothing
    """What brings the job on besides our own workers."""
    absent: Sequence[str] = ()
    """What must not work beside it, or the job would not wait for it."""
    slow: bool = False
    """Left to `make verify`: another row has the same arrow in another stage."""
    settings: dict[str, str] = field(default_factory=dict)


CANCELLED = asked("POST", "/cancel", waits())
ERASED, ERASED_FIRST = asked("DELETE", "", waits()), asked("DELETE", "", stored)
ONE_SLOW_SLOT = {"SLOTS": "1", "ECHO_FIXED_S": "0.2"}

CRASHES = (
    Crash("accept_after_store", "api", sent, again=sent_again),
    Crash("accept_after_row", "api", sent, again=swept),
    Crash("fetch_after_store", "errands", named_by_its_url, again=swept),
    Crash("fetch_after_row", "errands", named_by_its_url, again=swept),
    Crash("probe_before_keep", "errands", uploaded, again=swept),
    Crash("probe_after_keep", "errands", uploaded),
    Crash("after_claim", "survey", uploaded, slow=True),
    Crash("after_claim", "transcribe", waits()),
    Crash("after_grant", "survey", uploaded),
    Crash("after_grant", "transcribe", waits()),
    Crash("after_artefact", "survey", uploaded),
    Crash("after_survey_commit", "survey", uploaded),
    Crash("mid_work", "transcribe", waits(8), settings=ONE_SLOW_SLOT),
    Crash("after_transcript_commit", "transcribe", waits()),
    Crash("after_complete", "survey", uploaded, slow=True),
    Crash("after_complete", "transcribe", waits()),
    Crash("give_back_after_postgres", "transcribe", drained, settings=ONE_SLOW_SLOT),
    Crash("outbox_after_enqueue", "caretaker", in_the_outbox, absent=ALL),
    Crash("reap_after_takeover", "caretaker", left_by_its_worker, absent=ALL),
    Crash("reap_after_postgres", "caretaker", left_by_its_worker, absent=ALL),
    Crash("cancel_after_postgres", "api", CANCELLED, is_cancelled, absent=["transcribe"]),
    Crash("erase_after_tombstone", "api", ERASED, is_erased, erased_again(204), slow=True),
    Crash("erase_after_sound", "api", ERASED, is_erased, erased_again(204), absent=["transcribe"]),
    Crash("erase_after_row", "api", ERASED_FIRST, is_erased, erased_again(404), absent=["survey"]),
    Crash("retry_after_commit", "api", asked("POST", "/retry", failed), again=swept),
)

ELSEWHERE = {
    "retire_after_sound": "test_retire.py",
    "delivery_taken": "test_webhook_worker.py",
    "delivery_sent": "test_webhook_worker.py",
}
"""Points of processes that no recording waits for, and the tests that die there."""


def named(crash: Crash) -> str:
    return f"{crash.point}-{crash.part}"


def rows() -> list[Any]:
    slow = pytest.mark.slow
    return [pytest.param(c, id=named(c), marks=[slow] if c.slow else []) for c in CRASHES]


@pytest.mark.parametrize("crash", rows())
def test_what_a_crash_leaves_comes_right_within_a_lease_and_two_seconds(
    house: House, crash: Crash
) -> None:
    comes_right(house, crash)


@pytest.mark.slow
def test_so_it_does_at_the_lease_we_ship(servers: SimpleNamespace, tmp_path: Path) -> None:
    with opened(servers, tmp_path, 15.0) as house:
        for crash in CRASHES:
            if crash.part in PULLERS or crash.part == "caretaker":
                comes_right(house, crash)


def comes_right(house: House, crash: Crash) -> None:
    house.only(*(set(ALL) - {crash.part, *crash.absent}))
    _empty(house.parts)
    house.doomed = house.forked.start(
        crash.part, CRASH_AT=crash.point, wait=crash.part != "caretaker", **crash.settings
    )
    try:
        job_id = crash.reach(house)
        assert house.doomed.ended(house.lease_s + 60) == EXIT_CODE
    finally:
        (house.caretaker.folder / "pause").unlink(missing_ok=True)
        house.doomed.kill()
    died_s = time.monotonic()
    house.stand(*({crash.part, *ALL} - {"caretaker"}))
    eventually(house.nothing_of_the_dead, house.lease_s + 2, "its leases are settled")
    settled_s = time.monotonic() - died_s
    job_id = crash.again(house, job_id)
    # with the start of workers in it: bounded by nothing we promise
    eventually(lambda: crash.end(house, job_id), 90, f"{job_id} ends as it should")
    ended_s = time.monotonic() - died_s
    house.nothing_left()
    with transaction(house.parts.store) as c:
        transcripts = c.execute(select(tables.transcripts.c.job_id)).all()
    assert len(transcripts) == (crash.end is completed_once)
    figures = {"settled_s": round(settled_s, 2), "ended_s": round(ended_s, 2)}
    print("\n" + json.dumps({"crash": named(crash), **figures}))


def test_every_point_has_a_crash_and_a_place_in_the_code() -> None:
    here = list(dict.fromkeys(crash.point for crash in CRASHES))
    assert here == [point for point in POINTS if point not in ELSEWHERE]
    for point, tests in ELSEWHERE.items():
        assert f'"{point}"' in (Path(__file__).parent / tests).read_text()
    code = "".join(
        file.read_text() for top in ("pipeline", "workers") for file in (ROOT / top).rglob("*.py")
    )
    assert sorted(re.findall(r"reach\(\"(\w+)\"\)", code)) == sorted(POINTS)


def test_nobody_who_is_not_told_to_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    assert crash_points._told is None
    for point in POINTS:
        crash_points.reach(point)
