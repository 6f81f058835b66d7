"""What is delivered says how much of the recording it is worth."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from sqlalchemy import update

from pipeline.engine import Heard, Utterance
from pipeline.job import TRANSCRIBE, JobView, State
from pipeline.parts import Parts
from pipeline.steps.deliver import deliver, so_far
from pipeline.steps.transcribe import open_job
from pipeline.store import jobs, tables, views
from pipeline.store.session import transaction
from tests.lines import save_window, surveyed_job

NOBODY = "perhaps nobody speaks"
PROVENANCE = {"model": "echo", "engine": "echo"}
CALL = ("left", "right")


def heard(text: str = "Hello.", doubt: str | None = None) -> Heard:
    return Heard((Utterance(0.0, 1.0, text),), "en", 9, -0.1, "stop", 0.1, doubt=doubt)


def delivered(
    parts: Parts, *answers: Heard, channels: tuple[str, ...] = ("mono",), **columns: Any
) -> tuple[JobView, dict[str, Any]]:
    """A job whose windows of 2 s were heard so, its row changed to these columns before."""
    job_id = surveyed_job(parts, len(answers), queue=False, channels=channels)
    with transaction(parts.store) as c:
        mine = tables.jobs.c.id == uuid.UUID(job_id)
        c.execute(update(tables.jobs).where(mine).values(index_pending=False, **columns))
        (ticket,) = jobs.grant(c, TRANSCRIBE, [job_id], "t@here", "echo")
    job = open_job(parts.store, ticket, "en")
    said = dict(enumerate(answers))
    deliver(
        parts.store, parts.storage, ticket, job.plan, job.artefact_key, said, PROVENANCE, job.spoken
    )
    with transaction(parts.store) as c:
        view, body = views.view(c, job_id), views.transcript_body(c, job_id)
    assert view
    assert body
    return view, body


def test_a_transcript_says_which_channels_were_heard_and_how_long_all_is(parts: Parts) -> None:
    view, body = delivered(
        parts,
        *[heard()] * 4,
        channels=CALL,
        probed_s=8.5,
        options={"speakers": ["agent", "customer"]},
    )
    assert body["channels"] == [
        {"label": "left", "speaker": "agent", "language": "en"},
        {"label": "right", "speaker": "customer", "language": "en"},
    ]
    assert body["speakers_separated"] is True
    assert body["lengths"] == {
        "probed_s": 8.5, "decoded_s": 8.0, "speech_s": 8.0, "transcribed_s": 8.0
    }  # fmt: skip
    assert (view.transcribed_s, view.degraded) == (8.0, None)


@pytest.mark.parametrize(
    ("survey", "answers", "degraded", "transcribed_s"),
    [
        (None, [heard(), heard(doubt=NOBODY)], "1 of 2 windows is doubtful: " + NOBODY + " (1)", 2),
        ("2 of 9 packets lost", [heard(), heard()], "2 of 9 packets lost", 4),
        (
            "2 of 9 packets lost",
            [heard(), heard(doubt=NOBODY)],
            f"2 of 9 packets lost; 1 of 2 windows is doubtful: {NOBODY} (1)",
            2,
        ),
        (None, [heard(doubt=NOBODY)], f"1 of 1 windows is doubtful: {NOBODY} (1)", 0),
    ],
)
def test_a_job_is_degraded_by_what_the_survey_found_and_by_what_is_doubtful(
    parts: Parts, survey: str | None, answers: list[Heard], degraded: str, transcribed_s: float
) -> None:
    view, body = delivered(parts, *answers, degraded=survey)
    assert (view.state, view.degraded) == (State.COMPLETED, degraded)
    assert (view.no_speech, body["no_speech"]) == (False, False)
    assert view.transcribed_s == body["lengths"]["transcribed_s"] == transcribed_s


def test_what_is_heard_so_far_has_its_lengths_and_languages_too(parts: Parts) -> None:
    job_id = surveyed_job(parts, 4, queue=False, channels=CALL)
    with transaction(parts.store) as c:
        mine = tables.jobs.c.id == uuid.UUID(job_id)
        languages = {"detected_language": "de", "channel_languages": ["de", "en"]}
        c.execute(update(tables.jobs).where(mine).values(language="auto", **languages))
        (ticket,) = jobs.grant(c, TRANSCRIBE, [job_id], "t@here", "echo")
        save_window(c, ticket, 1, heard().to_json())
    document = so_far(parts.store, job_id)
    assert (document["partial"], document["language"]) == (True, "de")
    assert [channel["language"] for channel in document["channels"]] == ["de", "en"]
    assert document["lengths"]["transcribed_s"] == 2.0


def test_a_language_nobody_knows_yet_is_undetermined(parts: Parts) -> None:
    job_id = surveyed_job(parts, 2, queue=False)
    with transaction(parts.store) as c:
        mine = tables.jobs.c.id == uuid.UUID(job_id)
        c.execute(update(tables.jobs).where(mine).values(language="auto"))
    assert so_far(parts.store, job_id)["language"] == "und"
