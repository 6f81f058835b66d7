"""Cancel, retry and delete in every state: one clear end each, with workers where one works."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from pipeline.engine import Heard, Prepared
from pipeline.intake.prober import Prober
from pipeline.job import SURVEY, TRANSCRIBE, JobView, State
from pipeline.parts import Parts
from pipeline.steps.accept import Upload, accept
from pipeline.steps.probe import probe
from pipeline.store import jobs, views
from pipeline.store.session import transaction
from tests import driven, sounds
from tests.api_door import api, assert_problem, open_api, send
from tests.integration.test_errands import tone
from tests.lines import eventually, pulling, surveyed_job
from workers.echo_engine import EchoEngine
from workers.survey import SurveyWork

__all__ = ["api", "open_api"]

STATES = ["received", "probed", "surveying", "surveyed", "running", "completed", "failed"]


def in_state(parts: Parts, state: str) -> str:
    """A job moved there by hand, its recording in storage."""
    job_id = driven.received(parts)
    if state == "failed":
        driven.failed(parts, job_id)
    elif state == "surveying":
        driven.probed(parts, job_id)
        parts.queues[SURVEY.name].withdraw([job_id])
        with transaction(parts.store) as c:
            jobs.grant(c, SURVEY, [job_id], "surveyor", None)
    elif state != "received":
        {
            "probed": driven.probed,
            "surveyed": driven.surveyed,
            "running": driven.running,
            "completed": driven.completed,
        }[state](parts, job_id)
    return job_id


def view(parts: Parts, job_id: str) -> JobView | None:
    with transaction(parts.store) as c:
        return views.view(c, job_id)


def rows(parts: Parts) -> dict[str, int]:
    tables = ("jobs", "plans", "windows", "transcripts")
    with transaction(parts.store) as c:
        return {t: c.execute(text(f"SELECT count(*) FROM {t}")).scalar_one() for t in tables}


def stored(parts: Parts) -> list[str]:
    return [key for folder in ("recordings", "packed") for key, _ in parts.storage.keys(folder)]


def waiting(parts: Parts) -> int:
    return sum(sum(queue.counts()) for queue in parts.queues.values())


# -- without a worker -----------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_a_cancel_ends_what_has_not_ended_and_a_retry_begins_it_anew(
    api: TestClient, parts: Parts, state: str
) -> None:
    job_id = in_state(parts, state)
    ended = state in ("completed", "failed")
    said = api.post(f"/v1/jobs/{job_id}/cancel").json()
    assert said == {
        "id": job_id,
        "status": state if ended else "cancelled",
        "cancelled": not ended,
    }
    assert waiting(parts) == 0
    before = view(parts, job_id)
    assert before

    again = api.post(f"/v1/jobs/{job_id}/retry")

    if state == "completed":
        assert "completed" in assert_problem(again, 409, "not_retryable")
        return
    assert again.status_code == 202, again.text
    read = again.json()
    assert (read["status"], read["stage"], read["attempts"]) == ("queued", "received", 0)
    assert (read["error"], read["completed_at"], read["started_at"]) == (None, None, None)
    assert (read["progress"], read["degraded"]) == (0.0, None)
    after = view(parts, job_id)
    assert after
    assert after.attempt == before.attempt + 1  # fences whoever still has it
    assert_problem(api.post(f"/v1/jobs/{job_id}/retry"), 409, "not_retryable")
    assert rows(parts)["plans"] == 0


@pytest.mark.parametrize("state", [*STATES, "cancelled"])
def test_a_delete_leaves_nothing_in_any_state(api: TestClient, parts: Parts, state: str) -> None:
    if state == "surveyed":  # with packed speech
        job_id = surveyed_job(parts, windows=2)
    else:
        job_id = in_state(parts, "running" if state == "cancelled" else state)
    if state == "cancelled":
        api.post(f"/v1/jobs/{job_id}/cancel")

    answer = api.delete(f"/v1/jobs/{job_id}")

    assert (answer.status_code, answer.content) == (204, b"")
    assert rows(parts) == {"jobs": 0, "plans": 0, "windows": 0, "transcripts": 0}
    assert stored(parts) == []
    assert waiting(parts) == 0
    for path in ("", "/transcript", "/transcript?partial=1"):
        assert_problem(api.get(f"/v1/jobs/{job_id}{path}"), 404, "no_such_job")
    for ask in (api.delete(f"/v1/jobs/{job_id}"), api.post(f"/v1/jobs/{job_id}/retry")):
        assert_problem(ask, 404, "no_such_job")


@pytest.mark.parametrize("job_id", [driven.nobody(), "42", "%00", "x" * 3000])
def test_an_id_of_no_job_is_not_found(api: TestClient, job_id: str) -> None:
    assert_problem(api.delete(f"/v1/jobs/{job_id}"), 404, "no_such_job")
    assert_problem(api.post(f"/v1/jobs/{job_id}/retry"), 404, "no_such_job")


def test_a_retry_without_a_recording_is_refused(api: TestClient, parts: Parts) -> None:
    (empty,) = send(api, ("empty.wav", b"")).json()["jobs"]
    lost = in_state(parts, "failed")
    parts.storage.delete(f"recordings/{lost}")
    for job_id in (empty["id"], lost):
        said = api.post(f"/v1/jobs/{job_id}/retry")
        assert "not kept" in assert_problem(said, 409, "not_retryable")
        assert api.get(f"/v1/jobs/{job_id}").json()["status"] == "failed"


def test_a_recording_that_came_by_url_and_is_gone_is_fetched_again(
    api: TestClient, parts: Parts
) -> None:
    answer = api.post("/v1/jobs", json={"urls": ["http://example.com/a.wav"]})
    job_id = answer.json()["jobs"][0]["id"]
    with transaction(parts.store) as c:
        c.execute(text("UPDATE jobs SET sha256 = 'fetched'"))
    driven.failed(parts, job_id)
    assert api.post(f"/v1/jobs/{job_id}/retry").status_code == 202
    with transaction(parts.store) as c:
        assert jobs.recording_of(c, job_id).sha256 == ""


def test_a_retried_job_waits_after_those_that_came_before_the_retry(
    api: TestClient, parts: Parts
) -> None:
    first, second = in_state(parts, "failed"), in_state(parts, "received")
    api.post(f"/v1/jobs/{first}/retry")
    driven.probed(parts, first)
    driven.probed(parts, second)
    claimed = parts.queues[SURVEY.name].claim(9).jobs
    assert [job.job_id for job in claimed] == [second, first]


# -- with a worker --------------------------------------------------------------------------


class Watched(EchoEngine):
    """Tells how many windows are in service."""

    @property
    def serving(self) -> int:
        return self._serving


End = Callable[[TestClient, str], object]
ENDS: list[End] = [
    lambda api, job_id: api.post(f"/v1/jobs/{job_id}/cancel"),
    lambda api, job_id: api.delete(f"/v1/jobs/{job_id}"),
]


@pytest.mark.parametrize("end", ENDS, ids=["cancel", "delete"])
def test_a_running_job_that_is_ended_frees_its_slots_within_a_second_of_long_windows(
    api: TestClient, parts: Parts, end: End
) -> None:
    engine = Watched(slots=4, fixed_s=20.0, per_second_s=0.0)
    job_id = surveyed_job(parts, windows=8)
    with pulling(parts, engine):
        eventually(lambda: engine.serving == 4)
        begun_s = time.monotonic()
        end(api, job_id)
        eventually(lambda: engine.serving == 0, 5)
        took_s = time.monotonic() - begun_s
        print(f"slots free after {took_s:.2f} s")
        assert took_s < 2.0  # of windows that take 20 s
        engine._fixed_s = 0.0
        other = surveyed_job(parts)
        eventually(lambda: getattr(view(parts, other), "state", None) is State.COMPLETED, 5)
        eventually(lambda: waiting(parts) == 0)
    left = view(parts, job_id)
    assert left is None or left.state is State.CANCELLED
    assert rows(parts)["windows"] == 0
    assert rows(parts)["transcripts"] == 1


class HeldSurvey(SurveyWork):
    """A survey that waits at the gate before it reads the recording."""

    gate: threading.Event

    async def run(self, opened: object, unit: int) -> None:
        await asyncio.to_thread(self.gate.wait, 20)
        await super().run(opened, unit)  # type: ignore[arg-type]


@pytest.mark.parametrize("end", ENDS, ids=["cancel", "delete"])
def test_a_job_ended_while_it_is_surveyed_leaves_no_packed_speech(
    api: TestClient, parts: Parts, end: End
) -> None:
    sandbox = Prober(max_duration_s=60)
    upload = Upload("a.wav", [sounds.wav(sounds.voice(3.0))])
    job_id = accept(parts.store, parts.storage, upload, 10**7).job_id
    probe(parts.store, parts.storage, sandbox, parts.queues[SURVEY.name], job_id, "en")
    sandbox.close()
    work = HeldSurvey(parts)
    work.gate = threading.Event()
    with pulling(parts, work=work):
        eventually(lambda: getattr(view(parts, job_id), "state", None) is State.SURVEYING)
        end(api, job_id)
        work.gate.set()
        eventually(lambda: waiting(parts) == 0)
    left = view(parts, job_id)
    assert left is None or left.state is State.CANCELLED
    assert [key for key in stored(parts) if key.startswith("packed/")] == []
    assert rows(parts)["plans"] == 0


@pytest.mark.parametrize("end", ENDS, ids=["cancel", "delete"])
def test_a_job_ended_while_its_recording_is_read_is_read_no_further(
    api: TestClient, parts: Parts, end: End
) -> None:
    work = SurveyWork(parts)
    upload = Upload("long.wav", [sounds.wav(np.tile(sounds.voice(10.0), 60))])
    job_id = accept(parts.store, parts.storage, upload, 10**9).job_id
    sandbox = work._prober
    probe(parts.store, parts.storage, sandbox, parts.queues[SURVEY.name], job_id, "en")
    server = psutil.Process(sandbox.server_pid)
    eventually(lambda: not server.children())
    with pulling(parts, work=work):
        (child,) = eventually(server.children)
        child.suspend()  # it would read for ever
        try:
            end(api, job_id)
            eventually(lambda: not server.children(), 5)
            eventually(lambda: waiting(parts) == 0)
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.resume()  # or it would outlive a test that failed
    assert [key for key in stored(parts) if key.startswith("packed/")] == []


def test_a_job_cancelled_in_the_middle_is_retried_and_hears_only_the_rest(
    api: TestClient, parts: Parts
) -> None:
    job_id = surveyed_job(parts, windows=6)
    parts.storage.put(f"recordings/{job_id}", [b"RIFF"], 10)
    with pulling(parts, Watched(slots=1, fixed_s=0.1, per_second_s=0.0)):
        eventually(lambda: (view(parts, job_id) or 0) and view(parts, job_id).progress >= 0.3)  # type: ignore[union-attr]
        api.post(f"/v1/jobs/{job_id}/cancel")
        eventually(lambda: waiting(parts) == 0)
    heard = rows(parts)["windows"]
    assert 2 <= heard < 6
    assert api.post(f"/v1/jobs/{job_id}/retry").status_code == 202
    # probed and surveyed again, with the same plan
    with transaction(parts.store) as c:
        kept = c.execute(text("SELECT DISTINCT plan_hash FROM windows")).scalar_one()
    surveyed_again(parts, job_id, windows=6)
    engine = Counting(slots=2, fixed_s=0.0)
    with pulling(parts, engine):
        eventually(lambda: getattr(view(parts, job_id), "state", None) is State.COMPLETED)
    assert engine.answered == 6 - heard
    body = api.get(f"/v1/jobs/{job_id}/transcript").json()
    assert body["provenance"]["plan_hash"] == kept
    assert len(body["segments"]) == 6
    read = api.get(f"/v1/jobs/{job_id}").json()
    assert (read["status"], read["attempts"]) == ("completed", 1)


class Counting(EchoEngine):
    answered = 0

    async def transcribe(self, window: Prepared, **asked: Any) -> Heard:
        self.answered += 1
        return await super().transcribe(window, **asked)


def surveyed_again(parts: Parts, job_id: str, windows: int) -> None:
    """What probe and survey do to a retried job."""
    from pipeline.recording import Probe
    from pipeline.store import partials
    from tests.lines import plan_of_windows

    plan = plan_of_windows(windows)
    key = f"packed/{job_id}-2"
    parts.storage.put(key, [uuid.uuid4().bytes * (windows * 4000)], 10**9)
    with transaction(parts.store) as c:
        jobs.keep_probe(c, job_id, Probe(12.0, "header", False, "wav", "pcm", 8000, 1), 50)
        (ticket,) = jobs.grant(c, SURVEY, [job_id], "test", None)
        place = jobs.keep_survey(c, ticket, plan, 50)
        partials.keep_plan(c, job_id, plan, key)
    assert place
    parts.queues[TRANSCRIBE.name].enqueue([place])


def test_a_tone_is_no_speech_and_its_job_cannot_be_retried(api: TestClient, parts: Parts) -> None:
    # completed is an end that stays, also when nobody spoke
    sandbox = Prober(max_duration_s=60)
    upload = Upload("tone.wav", [tone(2)])
    job_id = accept(parts.store, parts.storage, upload, 10**7).job_id
    probe(parts.store, parts.storage, sandbox, parts.queues[SURVEY.name], job_id, "en")
    sandbox.close()
    with pulling(parts, work=SurveyWork(parts)):
        eventually(lambda: getattr(view(parts, job_id), "state", None) is State.COMPLETED)
    assert_problem(api.post(f"/v1/jobs/{job_id}/retry"), 409, "not_retryable")
    assert api.post(f"/v1/jobs/{job_id}/cancel").json()["cancelled"] is False
    assert api.delete(f"/v1/jobs/{job_id}").status_code == 204
    assert stored(parts) == []


# -- what is heard so far -------------------------------------------------------------------


def test_what_is_heard_so_far_reads_like_the_whole(api: TestClient, parts: Parts) -> None:
    path = "/transcript?partial=1"
    job_id = surveyed_job(parts, windows=4)
    with transaction(parts.store) as c:
        options = '{"speakers": ["agent", "customer"]}'
        c.execute(text("UPDATE jobs SET options = cast(:o AS jsonb)"), {"o": options})
    nothing = api.get(f"/v1/jobs/{job_id}{path}").json()
    assert (nothing["partial"], nothing["progress"], nothing["segments"]) == (True, 0.0, [])
    with pulling(parts, Watched(slots=1, fixed_s=0.15, per_second_s=0.0)):
        eventually(lambda: api.get(f"/v1/jobs/{job_id}{path}").json()["progress"] >= 0.5)
        some = api.get(f"/v1/jobs/{job_id}{path}").json()
        assert some["partial"] is True
        assert 2 <= len(some["segments"]) < 4
        assert_problem(api.get(f"/v1/jobs/{job_id}/transcript"), 409, "transcript_not_ready")
        eventually(lambda: getattr(view(parts, job_id), "state", None) is State.COMPLETED)
    whole = api.get(f"/v1/jobs/{job_id}{path}").json()
    assert (whole.pop("partial"), whole.pop("progress")) == (False, 1.0)
    assert whole == api.get(f"/v1/jobs/{job_id}/transcript").json()
    assert set(some) == {*whole, "partial", "progress"}
    assert some["segments"] == whole["segments"][: len(some["segments"])]
    assert api.get(f"/v1/jobs/{job_id}{path}&format=txt").text.startswith("echo")


@pytest.mark.parametrize("state", ["received", "probed", "surveying", "failed", "cancelled"])
def test_what_is_heard_so_far_of_a_job_nobody_hears_is_a_conflict(
    api: TestClient, parts: Parts, state: str
) -> None:
    job_id = in_state(parts, "surveyed" if state == "cancelled" else state)
    if state == "cancelled":
        api.post(f"/v1/jobs/{job_id}/cancel")
    answer = api.get(f"/v1/jobs/{job_id}/transcript?partial=1")
    word = state if state in ("failed", "cancelled") else "queued"
    assert word in assert_problem(answer, 409, "transcript_not_ready")
