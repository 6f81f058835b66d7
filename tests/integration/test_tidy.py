"""What a crash leaves behind is swept up; what somebody needs is not."""

from __future__ import annotations

import os
import time

from sqlalchemy import text

from pipeline.job import TRANSCRIBE
from pipeline.parts import Parts
from pipeline.steps.accept import Upload, accept
from pipeline.steps.cancel import cancel
from pipeline.steps.tidy import YOUNG_S, tidy
from pipeline.store import jobs
from pipeline.store.session import transaction
from tests.lines import save_window, surveyed_job


def litter(parts: Parts, key: str, age_s: float) -> str:
    """A file nobody's row names."""
    parts.storage.put(key, [b"x"], 10)
    then_s = time.time() - age_s
    os.utime(parts.settings.home / "storage" / key, (then_s, then_s))
    return key


def keys(parts: Parts) -> set[str]:
    return {key for folder in ("packed", "recordings") for key, _ in parts.storage.keys(folder)}


def test_old_litter_goes_and_young_litter_may_still_be_written(parts: Parts) -> None:
    for folder in ("packed", "recordings"):
        litter(parts, f"{folder}/old", YOUNG_S + 10)
        litter(parts, f"{folder}/young", 10)
    assert tidy(parts.store, parts.storage) == 2
    assert keys(parts) == {"packed/young", "recordings/young"}
    assert tidy(parts.store, parts.storage) == 0


def test_packed_speech_of_a_waiting_job_stays_however_old_and_goes_when_the_job_ends(
    parts: Parts,
) -> None:
    job_id = surveyed_job(parts)
    packed = litter(parts, f"packed/{job_id}-1", YOUNG_S + 10)
    recording = accept(parts.store, parts.storage, Upload("a.wav", [b"RIFF"]), 100)
    assert tidy(parts.store, parts.storage) == 0
    assert keys(parts) == {packed, f"recordings/{recording.job_id}"}
    with transaction(parts.store) as c:
        (ticket,) = jobs.grant(c, TRANSCRIBE, [job_id], "w", "m")
        save_window(c, ticket, 0, {"busy_s": 0.1})
    cancel(parts.store, parts.queues, job_id)
    assert tidy(parts.store, parts.storage) == 1
    assert keys(parts) == {f"recordings/{recording.job_id}"}
    with transaction(parts.store) as c:
        assert c.execute(text("SELECT count(*) FROM windows")).scalar_one() == 0
