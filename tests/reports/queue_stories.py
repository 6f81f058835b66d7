"""What was reported of queues, workers and restarts, done to ours: see test_reports_queue.py."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from celery.events import Event
from fastapi.testclient import TestClient
from sqlalchemy import select

from pipeline.engine import Heard, Prepared
from pipeline.handover import ERRANDS_LISTS, ERRANDS_QUEUE
from pipeline.job import TRANSCRIBE, State
from pipeline.parts import Parts, open_parts
from pipeline.steps.cancel import cancel
from pipeline.store import jobs, tables
from pipeline.store.session import transaction
from tests import driven
from tests.api_door import send
from tests.lines import eventually, pulling, states, surveyed_job, view
from tests.reports.checks import Here
from tests.servers import throwaway_home
from tests.sounds import silence, tone, wav
from workers.echo_engine import EchoEngine
from workers.server_binaries import valkey_server
from workers.state_folder import StateFolder

ROOT = Path(__file__).resolve().parents[2]


class Counting(EchoEngine):
    """Counts the windows it hears."""

    heard = 0

    async def transcribe(self, window: Prepared, **how: Any) -> Heard:
        self.heard += 1
        return await super().transcribe(window, **how)


def engine(slots: int, fixed_s: float) -> Counting:
    return Counting(slots=slots, fixed_s=fixed_s, per_second_s=0.0)


def timed(parts: Parts, lease_s: float, renew_s: float) -> None:
    """Leases shorter than ours, for workers begun after this."""
    settings = parts.settings.model_copy(update={"lease_s": lease_s, "renew_s": renew_s})
    object.__setattr__(parts, "settings", settings)
    for queue in parts.queues.values():
        queue.lease_ms = int(lease_s * 1000)


def all_done(parts: Parts, count: int, within_s: float = 30) -> None:
    eventually(lambda: states(parts) == {State.COMPLETED: count}, within_s)
    with transaction(parts.store) as c:
        assert len(c.execute(select(tables.transcripts.c.job_id)).all()) == count


# -- long jobs, and those that are only held ------------------------------------------------------


def a_job_longer_than_its_lease_runs_once(here: Here) -> None:
    """Three leases long, beside an idle worker, and no copy more for any lease that went by."""
    parts: Parts = here.ask("parts")
    timed(parts, 1.5, 0.3)
    job_id, first, second = surveyed_job(parts, windows=4), engine(1, 1.2), engine(1, 1.2)
    with pulling(parts, first, name="a@here"), pulling(parts, second, name="b@here"):
        all_done(parts, 1)
    assert view(parts, job_id).attempts == 1
    assert first.heard + second.heard == 4


def what_is_only_held_runs_once(here: Here) -> None:
    """Taken and not begun, for longer than a lease: heard once all the same."""
    parts: Parts = here.ask("parts")
    timed(parts, 1.5, 0.3)
    for _ in range(5):
        surveyed_job(parts)
    one = engine(1, 0.8)
    with pulling(parts, one):
        all_done(parts, 5)
    assert one.heard == 5


def short_ones_wait_behind_no_long_one(here: Here) -> None:
    """Two workers, one long job and nine short: each worker takes what it has a slot for."""
    parts: Parts = here.ask("parts")
    long = surveyed_job(parts, windows=16)
    short = [surveyed_job(parts) for _ in range(9)]
    with (
        pulling(parts, engine(1, 0.1), name="a@here"),
        pulling(parts, engine(1, 0.1), name="b@here"),
    ):
        eventually(lambda: all(view(parts, j).state is State.COMPLETED for j in short), 20)
        assert view(parts, long).state is not State.COMPLETED
        all_done(parts, 10)


def fifty_files_and_one_slot(here: Here) -> None:
    """Who is too busy takes nothing: none fails."""
    parts: Parts = here.ask("parts")
    for _ in range(50):
        surveyed_job(parts)
    with pulling(parts, engine(1, 0.01)):
        all_done(parts, 50)


def the_twentieth_is_heard_like_the_first(here: Here) -> None:
    client: TestClient = here.ask("api")
    parts: Parts = here.ask("parts")
    with pulling(parts, engine(1, 0.01)):
        for _ in range(20):
            job_id = surveyed_job(parts)
            eventually(lambda job_id=job_id: view(parts, job_id).state is State.COMPLETED)  # type: ignore[misc]
            assert "echo" in client.get(f"/v1/jobs/{job_id}/transcript").json()["text"]
    assert client.get("/v1/health/ready").status_code == 200


# -- Redis ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def forgetful_redis() -> Iterator[tuple[str, Any]]:
    """A server that keeps nothing on disk: (its URL, a function that kills and restarts it)."""
    with throwaway_home() as home, StateFolder(home) as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        free.close()
        words = [str(valkey_server(folder)), "--port", port, "--save", "", "--appendonly", "no"]
        begun: list[subprocess.Popen[bytes]] = []

        def start() -> None:
            begun.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, cwd=home))

        def restart(away_s: float) -> None:
            begun[-1].kill()
            begun[-1].wait()
            time.sleep(away_s)
            start()

        start()
        try:
            yield f"redis://127.0.0.1:{port}/0", restart
        finally:
            begun[-1].send_signal(signal.SIGKILL)
            begun[-1].wait()


def redis_comes_back_empty_under_load(here: Here) -> None:
    """Killed twice in the middle of a bulk, gone for a second, with nothing kept."""
    with forgetful_redis() as (url, restart):
        parts = open_parts(here.ask("settings").model_copy(update={"redis_url": url}))
        timed(parts, 2.0, 0.5)
        eventually(lambda: _answers(parts), 10)
        for _ in range(40):
            surveyed_job(parts)
        with pulling(parts, engine(2, 0.1)):
            for done in (5, 20):
                eventually(lambda done=done: states(parts).get(State.COMPLETED, 0) >= done)  # type: ignore[misc]
                restart(0.5)
            all_done(parts, 40, within_s=60)  # the report says never; its wish is a minute
            eventually(lambda: parts.queues[TRANSCRIBE.name].counts() == (0, 0), 20)
        parts.store.dispose()


def _answers(parts: Parts) -> bool:
    with contextlib.suppress(Exception):
        return bool(parts.queues[TRANSCRIBE.name].time_ms())
    return False


def few_go_first_and_zero_is_the_highest_priority(here: Here) -> None:
    """Who is heard first is our own sorted set's affair; probes of one who sends many go behind
    those of others, whatever number the broker gives to that.
    """
    parts: Parts = here.ask("parts")
    many, few = ([driven.nobody() for _ in range(count)] for count in (30, 3))
    parts.handover.probe(many, "many")
    parts.handover.probe(few, "few")
    redis: Any = parts.queues[TRANSCRIBE.name]._redis
    lists = {key for key in redis.keys("*") if redis.type(key) == "list"}
    assert lists == set(ERRANDS_LISTS)
    with parts.handover._celery.connection_for_read() as line:
        waiting = line.SimpleQueue(ERRANDS_QUEUE)
        assert waiting.qsize() == 33  # whoever counts by the broker's own rule sees them all
        taken = [waiting.get(timeout=5) for _ in range(33)]
        read = [one.payload[0][0] for one in taken]
        for one in taken:
            one.ack()
    assert read == [*many[:20], *few, *many[20:]]


# -- cancelling, and jobs nobody works on any more ------------------------------------------------


def a_cancel_with_no_worker_up_holds(here: Here) -> None:
    parts: Parts = here.ask("parts")
    job_id, one = surveyed_job(parts), engine(1, 0.01)
    other = surveyed_job(parts)
    assert cancel(parts.store, parts.queues, job_id)
    with pulling(parts, one):
        eventually(lambda: view(parts, other).state is State.COMPLETED)
    assert view(parts, job_id).state is State.CANCELLED
    assert one.heard == 1
    assert parts.queues[TRANSCRIBE.name].counts() == (0, 0)


def a_job_that_is_only_held_can_be_cancelled(here: Here) -> None:
    """Granted to a worker and in no slot yet: none of it is heard."""
    parts: Parts = here.ask("parts")
    ids, one = [surveyed_job(parts) for _ in range(2)], engine(1, 1.5)
    with pulling(parts, one):
        eventually(lambda: states(parts).get(State.RUNNING) == 2)  # one slot, one made ready
        eventually(lambda: one.heard == 1)
        held = max(ids)  # of one size the first that came goes first
        assert cancel(parts.store, parts.queues, held)
        eventually(lambda: states(parts) == {State.COMPLETED: 1, State.CANCELLED: 1})
        eventually(lambda: parts.queues[TRANSCRIBE.name].counts() == (0, 0))
    assert one.heard == 1


def a_job_of_a_dead_worker_obeys(here: Here) -> None:
    """Processing, and nobody works on it: it can be cancelled, tried again and deleted."""
    client: TestClient = here.ask("api")
    parts: Parts = here.ask("parts")
    for ask in ("cancel", "delete"):
        (sent,) = send(client, ("call.wav", wav(tone(1)))).json()["jobs"]
        job_id, queue = sent["id"], parts.queues[TRANSCRIBE.name]
        driven.surveyed(parts, job_id)
        assert [job.job_id for job in queue.claim(1).jobs] == [job_id]
        with transaction(parts.store) as c:
            assert jobs.grant(c, TRANSCRIBE, [job_id], "killed", "echo")
        path = f"/v1/jobs/{job_id}"
        assert client.get(path).json()["status"] == "processing"
        if ask == "cancel":
            assert client.post(f"{path}/cancel").json()["status"] == "cancelled"
            assert client.post(f"{path}/retry").status_code == 202
            assert client.get(path).json()["status"] == "queued"
        assert client.delete(path).status_code == 204
        assert client.get(path).status_code == 404


def failed_twins_are_both_tried_again(here: Here) -> None:
    client: TestClient = here.ask("api")
    parts: Parts = here.ask("parts")
    twin = ("call.wav", wav(tone(1)))
    ids = [job["id"] for job in send(client, twin, twin).json()["jobs"]]
    for job_id in ids:
        driven.failed(parts, job_id)
    assert [client.post(f"/v1/jobs/{job_id}/retry").status_code for job_id in ids] == [202, 202]
    assert states(parts) == {State.RECEIVED: 2}


# -- many at once ---------------------------------------------------------------------------------


def thirty_files_and_ten_streams(here: Here) -> None:
    """More streams than a browser opens to one host, and everything else still answers."""
    url = here.ask("served")
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(httpx.Client(base_url=url, timeout=20, trust_env=False))
        sound = wav(tone(0.2))
        assert send(client, *[(f"{n}.wav", sound) for n in range(30)], batch_id="b").is_success
        for _ in range(10):
            stream = stack.enter_context(client.stream("GET", "/v1/batches/b/events"))
            assert next(stream.iter_text())
        begun_s = time.monotonic()
        assert len(client.get("/v1/jobs?batch=b").json()["jobs"]) == 30
        assert client.post("/v1/batches/b/cancel").is_success
        assert time.monotonic() - begun_s < 5


def health_answers_beside_five_uploads(here: Here) -> None:
    url = here.ask("served")
    sound, slowest_s = wav(silence(600)), 0.0  # 19 MB each

    def upload(_: int) -> int:
        files = {"files": ("long.wav", sound)}
        return httpx.post(f"{url}/v1/jobs", files=files, timeout=60, trust_env=False).status_code

    with ThreadPoolExecutor(5) as senders:
        sent = [senders.submit(upload, number) for number in range(5)]
        while not all(one.done() for one in sent):
            begun_s = time.monotonic()
            assert httpx.get(f"{url}/v1/health", timeout=20, trust_env=False).status_code == 200
            slowest_s = max(slowest_s, time.monotonic() - begun_s)
    assert [one.result() for one in sent] == [202] * 5
    assert 0 < slowest_s < 5


def flower_keeps_a_thousand_and_the_newest(here: Here) -> None:
    """20,000 tasks through the memory of the Flower we ship, set to 1,000."""
    from flower.events import EventsState

    from workers.flower_server import flower_options

    settings = here.ask("settings").model_copy(update={"flower_max_tasks": 1000})
    most = flower_options(settings)["max_tasks"]
    state = EventsState(max_tasks_in_memory=most)
    for number in range(20_000):
        facts = {"uuid": f"job-{number}", "hostname": "t@here", "name": "transcribe"}
        when = {"timestamp": float(number), "local_received": float(number), "clock": number}
        state.event(Event("task-received", **facts, **when))
    assert len(state.tasks) == 1000
    assert "job-19999" in state.tasks


def an_engines_own_priority_is_off(here: Here) -> None:
    """Order is made before the engine: inside it first come is first served."""
    engine_files = sorted((ROOT / "workers").glob("vllm_*.py"))
    assert engine_files
    source = "".join(file.read_text() for file in engine_files)
    assert "scheduling_policy" not in source
    assert "priority=" not in source
