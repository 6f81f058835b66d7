"""Errands: a probe is safe to run twice, and a lost message is sent again."""

from __future__ import annotations

import time
import wave
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

import pytest
from redis.exceptions import ResponseError
from sqlalchemy import text

from pipeline.errors import PartDown
from pipeline.intake.prober import Prober
from pipeline.job import SURVEY, State
from pipeline.parts import Parts
from pipeline.recording import Transcript
from pipeline.settings import read_settings
from pipeline.steps.accept import Upload, accept
from pipeline.steps.probe import probe
from pipeline.steps.survey import pack
from pipeline.store import jobs, views
from pipeline.store.session import transaction
from tests.lines import plan_of_windows, states
from tests.sounds import joined, silence, voice
from workers.app import make_app
from workers.errands import _once


def tone(seconds: float) -> bytes:
    file = BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(8000)
        out.writeframes(bytes(range(256)) * int(seconds * 62.5))
    return file.getvalue()


def accepted(parts: Parts, content: bytes, name: str = "call.wav", **asked: Any) -> str:
    upload = Upload(name, [content], **asked)
    return accept(parts.store, parts.storage, upload, 10**9).job_id


def run_probe(parts: Parts, prober: Prober, job_id: str) -> None:
    probe(parts.store, parts.storage, prober, parts.queues[SURVEY.name], job_id, "en")


def test_a_probed_recording_waits_for_its_survey_at_its_size(parts: Parts, prober: Prober) -> None:
    short, long = accepted(parts, tone(2)), accepted(parts, tone(200))
    for job_id in (long, short, short):  # a message may come twice
        run_probe(parts, prober, job_id)
    assert states(parts) == {State.PROBED: 2}
    buckets = {job.job_id: job.bucket for job in parts.queues[SURVEY.name].claim(999).jobs}
    assert buckets[short] < buckets[long]
    with transaction(parts.store) as c:
        view = views.view(c, short)
    assert view is not None
    assert view.duration_s == pytest.approx(2.0, abs=0.05)
    assert (view.probed_source, view.probe_reason) == ("header", None)


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("damage", [None, "3 of 9 packets of audio could not be decoded"])
def test_a_recording_that_was_cut_off_is_told_as_degraded_to_its_end(
    parts: Parts, prober: Prober, damage: str | None, silent: bool
) -> None:
    job_id = accepted(parts, tone(20)[: 44 + 16_000 * 8])  # 8 of 20 s
    run_probe(parts, prober, job_id)
    with transaction(parts.store) as c:
        (ticket,) = jobs.grant(c, SURVEY, [job_id], "test", None)
        if silent:
            nothing = Transcript(job_id, "", "en", 8.0, (), no_speech=True)
            assert jobs.keep_transcript(c, ticket, nothing, plan_of_windows(0), damage)
        else:
            assert jobs.keep_survey(c, ticket, plan_of_windows(4), 40, damage)
        view = views.view(c, job_id)
    assert view is not None
    cut_off = "the header claims 20.0 s, 8.0 s are there"
    assert view.degraded == (f"{cut_off}; {damage}" if damage else cut_off)
    assert (view.probed_s, view.probed_source) == (8.0, "scan")
    assert view.probe_reason == "the WAV header claims 320000 bytes of sound in 128044"


def test_a_recording_that_is_whole_is_not_degraded(parts: Parts, prober: Prober) -> None:
    job_id = accepted(parts, tone(2))
    run_probe(parts, prober, job_id)
    with transaction(parts.store) as c:
        (ticket,) = jobs.grant(c, SURVEY, [job_id], "test", None)
        assert jobs.keep_survey(c, ticket, plan_of_windows(1), 40, None)
        view = views.view(c, job_id)
    assert view is not None
    assert view.degraded is None


def test_what_a_sender_declares_reaches_the_probe_and_the_survey(
    parts: Parts, prober: Prober
) -> None:
    sound = joined([voice(3, rate=16_000), silence(1)]).tobytes()
    options = {"raw_format": "sln@16000"}
    job_id = accepted(parts, sound, "звонок.pcm", options=options)
    run_probe(parts, prober, job_id)
    with transaction(parts.store) as c:
        view = views.view(c, job_id)
        (ticket,) = jobs.grant(c, SURVEY, [job_id], "test", None)
    assert view is not None
    assert (view.duration_s, view.probed_source) == (4.0, "declared")
    packed = pack(parts.storage, prober, ticket)
    assert packed.report.plan.duration_s == pytest.approx(4.0, abs=0.01)
    assert packed.report.plan.speech_s == pytest.approx(3.0, abs=0.5)


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"Dear customer, this is a letter." * 9, "not_audio"), (tone(0), "no_samples")],
)
def test_what_is_no_recording_fails_with_a_code_and_a_sentence(
    parts: Parts, prober: Prober, content: bytes, code: str
) -> None:
    job_id = accepted(parts, content)
    run_probe(parts, prober, job_id)
    with transaction(parts.store) as c:
        view = views.view(c, job_id)
    assert view is not None
    assert (view.state, view.error_code) == (State.FAILED, code)
    assert (view.error_message or "").endswith(".")
    assert parts.queues[SURVEY.name].counts() == (0, 0)


def test_an_empty_file_is_a_failed_job_at_once_and_leaves_nothing(parts: Parts) -> None:
    job_id = accepted(parts, b"")
    assert states(parts) == {State.FAILED: 1}
    assert not list((parts.settings.home / "storage").rglob(job_id))


def test_a_recording_whose_file_is_gone_fails_and_says_so(parts: Parts, prober: Prober) -> None:
    job_id = accepted(parts, tone(2))
    parts.storage.delete(f"recordings/{job_id}")
    run_probe(parts, prober, job_id)
    with transaction(parts.store) as c:
        view = views.view(c, job_id)
    assert view is not None
    assert view.error_code == "recording_missing"


def test_a_job_nobody_probed_is_found_by_the_sweep_but_not_too_soon(parts: Parts) -> None:
    job_id = accepted(parts, tone(2))
    with transaction(parts.store) as c:
        assert jobs.forgotten(c, 30.0, 10) == []
        c.execute(text("UPDATE jobs SET updated_at = updated_at - interval '31 seconds'"))
        assert jobs.forgotten(c, 30.0, 10) == [job_id]
        assert jobs.forgotten(c, 30.0, 10) == []  # told once, not every ten seconds


def test_a_job_that_cannot_be_committed_leaves_no_file(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: object) -> None:
        raise PartDown("Postgres does not answer")

    monkeypatch.setattr(jobs, "add_job", down)
    with pytest.raises(PartDown):
        accepted(parts, tone(2))
    assert [p for p in (parts.settings.home / "storage").rglob("*") if p.is_file()] == []


def test_a_redis_that_answers_errors_is_waited_out_like_one_that_is_gone() -> None:
    with make_app(read_settings({"FAIRSCRIBE_REDIS_URL": "redis://h/0"})).connection() as broker:
        assert issubclass(ResponseError, broker.connection_errors)


def test_what_many_threads_ask_for_at_once_is_made_once() -> None:
    """Eight threads of a worker meet at its first probes: one sandbox, not eight."""
    made = []

    def make() -> object:
        time.sleep(0.05)  # as a process takes to start
        made.append(object())
        return made[-1]

    get = _once(make)
    with ThreadPoolExecutor(8) as threads:
        got = list(threads.map(lambda _: get(), range(8)))
    assert len(made) == 1
    assert set(got) == set(made)
