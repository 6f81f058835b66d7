"""Only what is said in a recording counts once it is surveyed, whatever was claimed of it."""

from __future__ import annotations

import wave
from collections.abc import Iterator
from io import BytesIO

import numpy as np
import pytest

from bench.sets import RECORDINGS, surveyed
from pipeline.intake.prober import Prober
from pipeline.job import SURVEY, TRANSCRIBE
from pipeline.parts import Parts
from pipeline.recording import Probe
from pipeline.scheduling.work import bucket_of, predicted_work_s
from pipeline.steps.accept import Upload, accept
from pipeline.steps.survey import commit, pack
from pipeline.store import jobs
from pipeline.store.session import transaction

SAID = RECORDINGS / "hotel.flac"
"""One sentence."""


@pytest.fixture(scope="module")
def prober() -> Iterator[Prober]:
    sandbox = Prober(max_duration_s=24 * 3600)
    yield sandbox
    sandbox.close()


def with_silence(before_s: float) -> bytes:
    """The same sentence after so many seconds of silence, as a WAV."""
    _, packed = surveyed(SAID)
    file = BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16_000)
        out.writeframes(np.zeros(int(before_s * 16_000), "<i2").tobytes() + packed)
    return file.getvalue()


def believed(parts: Parts, content: bytes, duration_s: float) -> tuple[str, int]:
    """A job whose header was believed to say this; its place in the survey queue, a bucket."""
    job_id = accept(parts.store, parts.storage, Upload("call", [content]), 10**9).job_id
    found = Probe(duration_s, "header", False, "wav", "pcm_s16le", 16_000, 1)
    with transaction(parts.store) as c:
        place = jobs.keep_probe(
            c, job_id, found, bucket_of(predicted_work_s(duration_s, None, "en"))
        )
    assert place is not None
    return job_id, place.bucket


def surveyed_bucket(parts: Parts, prober: Prober, job_id: str) -> int:
    """Where it stands in the transcribe queue, once it was decoded."""
    with transaction(parts.store) as c:
        (ticket,) = jobs.grant(c, SURVEY, [job_id], "s@here", None)
    packed = pack(parts.storage, prober, ticket)
    queue = parts.queues[TRANSCRIBE.name]
    commit(parts.store, parts.storage, queue, ticket, packed, "en")
    claimed = {job.job_id: job.bucket for job in queue.claim(999).jobs}
    return claimed[job_id]


def test_a_header_that_lies_buys_nothing_once_the_file_is_decoded(
    parts: Parts, prober: Prober
) -> None:
    content = SAID.read_bytes()
    plan, _ = surveyed(SAID)
    # Given the same file three times: one believed, one of a tenth of a second, one of ten hours
    honest, short, long = (
        believed(parts, content, duration_s) for duration_s in (plan.duration_s, 0.1, 36_000.0)
    )
    # Then they stand in the survey's line where their headers put them
    assert short[1] < honest[1] < long[1]
    # But in the engine's line side by side, at what is said in them
    buckets = {surveyed_bucket(parts, prober, job_id) for job_id, _ in (honest, short, long)}
    assert buckets == {bucket_of(predicted_work_s(plan.speech_s, len(plan.windows), "en"))}


def test_silence_is_no_work_once_the_file_is_surveyed(parts: Parts, prober: Prober) -> None:
    bare, long = with_silence(0.0), with_silence(300.0)
    (first, before), (second, longer) = (
        believed(parts, content, len(content) / 32_000) for content in (bare, long)
    )
    assert longer > before + 20
    assert abs(surveyed_bucket(parts, prober, first) - surveyed_bucket(parts, prober, second)) <= 1
