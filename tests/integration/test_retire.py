"""What was kept for its days goes: recordings, transcripts, whole jobs; what is not due stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from pipeline.caller import ANYONE
from pipeline.errors import Erased, NotRetryable, PartDown, RecordingMissing
from pipeline.parts import Parts
from pipeline.steps.accept import accept_urls, new_job_id
from pipeline.steps.deliver import so_far
from pipeline.steps.join import joined, recordings
from pipeline.steps.retire import retire
from pipeline.steps.retry import retry
from pipeline.steps.tidy import packed_due, tidy
from pipeline.store import jobs, retention
from pipeline.store.retention import Due, Keep
from pipeline.store.session import transaction
from tests import driven
from tests.api_door import api, open_api
from tests.lines import surveyed_job

__all__ = ["api", "open_api"]


def ended(parts: Parts, days_ago: float, how: str = "completed", **metadata: str) -> str:
    """A job that ended so long ago; its recording is stored."""
    job_id = driven.received(parts)
    if how == "completed":
        driven.completed(parts, job_id)
    elif how == "failed":
        driven.failed(parts, job_id)
    aged(parts, job_id, days_ago)
    with transaction(parts.store) as c:
        given = {"id": job_id, "metadata": json.dumps(metadata)}
        c.execute(text("UPDATE jobs SET metadata = :metadata WHERE id = :id"), given)
    return job_id


def aged(parts: Parts, job_id: str, days_ago: float) -> None:
    ago = {"id": job_id, "days": days_ago}
    with transaction(parts.store) as c:
        when = "clock_timestamp() - make_interval(secs => :days * 86400)"
        c.execute(text(f"UPDATE jobs SET completed_at = {when} WHERE id = :id"), ago)


def has_sound(parts: Parts, job_id: str) -> bool:
    try:
        return parts.storage.size(f"recordings/{job_id}") > 0
    except RecordingMissing:
        return False


def row(parts: Parts, job_id: str) -> Any:
    with transaction(parts.store) as c:
        return c.execute(text("SELECT * FROM jobs WHERE id = :id"), {"id": job_id}).first()


def test_recordings_go_when_their_days_are_over_and_the_row_says_when(parts: Parts) -> None:
    old, failed, young = (
        ended(parts, 31),
        ended(parts, 31, "failed"),
        ended(parts, 29),
    )
    waiting = driven.received(parts)
    keep = Keep(audio_days=30)
    with transaction(parts.store) as c:
        assert retention.due(c, keep) == Due(audio=2)
    assert retire(parts.store, parts.storage, keep) == Due(audio=2)
    assert [has_sound(parts, j) for j in (old, failed, young, waiting)] == [
        False,
        False,
        True,
        True,
    ]
    assert row(parts, old).audio_erased_at is not None
    assert row(parts, young).audio_erased_at is None
    assert row(parts, old).state == "completed"
    assert so_far(parts.store, old)["text"] == "Grüße! Hello 🙂."
    assert retire(parts.store, parts.storage, keep) == Due()
    assert tidy(parts.store, parts.storage) == 0


def test_nothing_goes_unless_the_settings_say_so(parts: Parts) -> None:
    job_id = ended(parts, 4_000)
    assert parts.keep == Keep()
    assert retire(parts.store, parts.storage, parts.keep) == Due()
    assert has_sound(parts, job_id)


def test_a_job_whose_recording_was_erased_is_not_tried_again_unless_it_has_a_url(
    parts: Parts,
) -> None:
    job_id = ended(parts, 2, "failed")
    fetched = new_job_id()
    accept_urls(parts.store, {fetched: "https://example.com/a.wav"}, {})
    driven.failed(parts, fetched)
    aged(parts, fetched, 2)
    assert retire(parts.store, parts.storage, Keep(audio_days=1)).audio == 2
    with pytest.raises(NotRetryable, match="days were over: it was erased on 20"):
        retry(parts.store, parts.storage, parts.handover, job_id)
    retry(parts.store, parts.storage, parts.handover, fetched)
    assert row(parts, fetched).state == "received"
    assert row(parts, fetched).audio_erased_at is None


def test_a_transcript_goes_with_all_that_was_heard_and_the_job_still_reads(parts: Parts) -> None:
    old, young = ended(parts, 91, call_id="c-1"), ended(parts, 89)
    failed = ended(parts, 91, "failed")
    keep = Keep(transcripts_days=90)
    assert retire(parts.store, parts.storage, keep) == Due(transcripts=1)
    with transaction(parts.store) as c:
        for table in ("transcripts", "windows"):
            query = text(f"SELECT count(*) FROM {table} WHERE job_id = :id")
            assert c.execute(query, {"id": old}).scalar_one() == 0
    with pytest.raises(Erased, match="erased on 20"):
        so_far(parts.store, old)
    with pytest.raises(Erased, match="days of its transcripts"):
        joined(parts.store, "c-1", recordings(parts.store, "c-1", ANYONE))
    assert so_far(parts.store, young)["text"]
    assert row(parts, old).state == "completed"
    assert row(parts, failed).transcript_erased_at is None
    assert has_sound(parts, old)
    assert retire(parts.store, parts.storage, keep) == Due()


def test_what_was_heard_of_a_recording_that_begins_again_meanwhile_stays(parts: Parts) -> None:
    # Given a failed job whose recording is due, and somebody who tries it again at this moment
    job_id = ended(parts, 2, "failed")
    with transaction(parts.store) as c:
        assert jobs.retry(c, job_id, 0, fetch=False)
        # When retention comes by before that is committed
        assert retire(parts.store, parts.storage, Keep(audio_days=1)) == Due()
    # Then the recording is there for it
    assert has_sound(parts, job_id)


@pytest.mark.parametrize("survives", ["storage away", "kill -9"])
def test_cut_short_it_goes_on_where_it_was(
    parts: Parts, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, survives: str
) -> None:
    ids = [ended(parts, 2) for _ in range(3)]
    if survives == "kill -9":
        code = (
            "from pipeline.parts import open_parts; from pipeline.settings import read_settings;"
            "from pipeline.steps.retire import retire; p = open_parts(read_settings());"
            "retire(p.store, p.storage, p.keep)"
        )
        env = {**os.environ, **environ, "FAIRSCRIBE_KEEP_AUDIO_DAYS": "1"}
        env["FAIRSCRIBE_CRASH_AT"] = "retire_after_sound"
        assert subprocess.run([sys.executable, "-c", code], env=env).returncode == 9
        assert not any(has_sound(parts, job_id) for job_id in ids)
    else:
        left, erase = [1], parts.storage.delete

        def fails_at_the_second(key: str) -> None:
            if not left:
                raise PartDown("Storage does not answer: gone.")
            left.pop()
            erase(key)

        monkeypatch.setattr(parts.storage, "delete", fails_at_the_second)
        with pytest.raises(PartDown):
            retire(parts.store, parts.storage, Keep(audio_days=1))
        monkeypatch.undo()
    assert all(row(parts, job_id).audio_erased_at is None for job_id in ids)
    assert retire(parts.store, parts.storage, Keep(audio_days=1)) == Due(audio=3)
    assert not any(has_sound(parts, job_id) for job_id in ids)


def test_packed_speech_has_days_of_its_own(parts: Parts) -> None:
    job_id = surveyed_job(parts)
    with transaction(parts.store) as c:
        jobs.cancel(c, job_id)
    aged(parts, job_id, 1)
    assert packed_due(parts.store, parts.storage, 2) == 0
    assert tidy(parts.store, parts.storage, 2) == 0
    assert packed_due(parts.store, parts.storage, 0.5) == 1
    assert tidy(parts.store, parts.storage, 0.5) == 1
    assert parts.storage.keys("packed") == []


def test_accesses_are_remembered_for_their_days(parts: Parts) -> None:
    with transaction(parts.store) as c:
        for days in (401, 399):
            c.execute(
                text(
                    "INSERT INTO accesses (action, job_id, at) VALUES ('read', :job,"
                    " clock_timestamp() - make_interval(days => :days))"
                ),
                {"job": uuid.uuid4(), "days": days},
            )
    assert retire(parts.store, parts.storage, Keep()) == Due(accesses=1)
    assert retire(parts.store, parts.storage, Keep()) == Due()


def test_the_api_says_that_a_transcript_is_gone_and_since_when(
    parts: Parts, api: httpx.Client
) -> None:
    job_id = ended(parts, 2)
    retire(parts.store, parts.storage, Keep(audio_days=1, transcripts_days=1))
    for asked in ("", "?format=srt", "?partial=1"):
        answer = api.get(f"/v1/jobs/{job_id}/transcript{asked}")
        assert (answer.status_code, answer.json()["code"]) == (410, "erased")
    job = api.get(f"/v1/jobs/{job_id}").json()
    assert job["status"] == "completed"
    assert job["audio_erased_at"] is not None
    assert job["transcript_erased_at"] is not None
