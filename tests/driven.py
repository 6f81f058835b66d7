"""Jobs moved by hand: what workers would have done to them, through the store's own moves."""

from __future__ import annotations

import uuid

from pipeline.job import SURVEY, TRANSCRIBE, Ticket
from pipeline.parts import Parts
from pipeline.recording import Channel, Lengths, Piece, Plan, Probe, Segment, Transcript, Window
from pipeline.steps.accept import Upload, accept
from pipeline.store import jobs
from pipeline.store.session import transaction

PLAN = Plan(
    duration_s=4.0,
    speech_s=3.0,
    channels=("left", "right"),
    channel_reason="Two people, one a side.",
    windows=(Window(0, 0, 0, 48_000, (Piece(0.0, 0.5, 3.0),)),),
)


def in_force(parts: Parts) -> set[str]:
    """The order of work Redis holds, of both stages: one, when all is well."""
    return {str(queue.policy()) for queue in parts.queues.values()}


def received(parts: Parts, file_name: str = "call.wav", batch_id: str | None = None) -> str:
    """A job whose recording is stored; its id."""
    upload = Upload(file_name, [b"RIFF"], batch_id=batch_id)
    return accept(parts.store, parts.storage, upload, 1000).job_id


def probed(parts: Parts, job_id: str, bucket: int = 50) -> None:
    """It waits to be surveyed, in the index too."""
    probe = Probe(4.0, "header", False, "wav", "pcm_s16le", 8000, 2)
    with transaction(parts.store) as c:
        place = jobs.keep_probe(c, job_id, probe, bucket)
    assert place is not None
    parts.queues[SURVEY.name].enqueue([place])


def surveyed(parts: Parts, job_id: str, bucket: int = 50) -> None:
    """It waits to be transcribed, in the index too."""
    probed(parts, job_id, bucket)
    parts.queues[SURVEY.name].withdraw([job_id])
    with transaction(parts.store) as c:
        (ticket,) = jobs.grant(c, SURVEY, [job_id], "surveyor", None)
        place = jobs.keep_survey(c, ticket, PLAN, bucket)
    assert place is not None
    parts.queues[TRANSCRIBE.name].enqueue([place])


def running(parts: Parts, job_id: str) -> Ticket:
    """A worker has it in hand."""
    surveyed(parts, job_id)
    parts.queues[TRANSCRIBE.name].withdraw([job_id])
    with transaction(parts.store) as c:
        (ticket,) = jobs.grant(c, TRANSCRIBE, [job_id], "transcriber", "tiny.en")
    return ticket


def completed(parts: Parts, job_id: str, ticket: Ticket | None = None) -> None:
    """Two people said something."""
    ticket = ticket or running(parts, job_id)
    said = (
        Segment(0.5, 1.5, 0, "left", "Grüße!", 0.9),
        Segment(1.5, 3.5, 1, "right", "Hello 🙂.", None),
    )
    transcript = Transcript(
        job_id,
        "Grüße! Hello 🙂.",
        "en",
        4.0,
        said,
        channels=(Channel("left", "left", "en"), Channel("right", "right", "en")),
        channel_reason=PLAN.channel_reason,
        speakers_separated=True,
        lengths=Lengths(4.0, 4.0, 3.0, 3.0),
        provenance={"model": "t"},
    )
    with transaction(parts.store) as c:
        assert jobs.keep_transcript(c, ticket, transcript)


def failed(parts: Parts, job_id: str, code: str = "not_audio") -> None:
    """It cannot be transcribed."""
    with transaction(parts.store) as c:
        assert jobs.fail(c, job_id, code, "The file is not audio in any format we read.")


def nobody() -> str:
    """The id of a job that never was."""
    return str(uuid.uuid4())
