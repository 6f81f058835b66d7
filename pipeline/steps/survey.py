"""survey: the recording is decoded once; its speech is found, planned into windows and packed.

Runs in the survey puller, the decoding itself in a sandboxed child. Leaves the packed speech as
one artefact in storage and a plan in Postgres, so that the engine's worker never parses an upload.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from sqlalchemy import Engine

from pipeline.crash_points import reach
from pipeline.errors import LeaseLost
from pipeline.intake.prober import Prober
from pipeline.intake.reading import Reading
from pipeline.intake.storage import Storage
from pipeline.job import AUTO, Ticket
from pipeline.queue.redis_queue import RedisQueue
from pipeline.recording import Plan, Span, SurveyReport
from pipeline.scheduling.policies import Waiting
from pipeline.scheduling.work import bucket_of, predicted_work_s
from pipeline.store import jobs, partials
from pipeline.store.session import transaction
from pipeline.transcript.channel_languages import UNDETERMINED
from pipeline.transcript.document import Spoken, compose

CHUNK_BYTES = 1 << 20
"""Packed speech goes to storage in pieces of this size."""


MISMATCH_S, MISMATCH_SHARE = 5.0, 0.1
"""Probed and decoded length differ when they are apart by more than both: seconds, and the share
of the longer."""

LEAST_TOLD_S = 0.1
"""Less silence put in is nobody's concern."""


@dataclass(frozen=True)
class Packed:
    """A decoded recording: its report, and where its packed speech lies."""

    report: SurveyReport
    artefact_key: str


def pack(
    storage: Storage, prober: Prober, ticket: Ticket, reading: Reading | None = None
) -> Packed:
    """Decode one recording and store its packed speech.

    Raises `RecordingRefused` when it is not sound after all, `PartDown` when storage does not
    answer or `reading` is called off.
    """
    # a key of its own for each run: one whose commit went through unheard keeps its artefact
    artefact_key = f"packed/{ticket.job_id}-{ticket.attempt}-{uuid4().hex[:8]}"
    packed = Packed(_decode(storage, prober, ticket, artefact_key, reading), artefact_key)
    reach("after_artefact")
    return packed


def commit(
    store: Engine,
    storage: Storage,
    transcribe_queue: RedisQueue,
    ticket: Ticket,
    packed: Packed,
    default_language: str,
) -> None:
    """Let the surveyed job wait for an engine; complete it here when nobody speaks in it.

    May be asked again after `PartDown`. Raises `LeaseLost` when another worker has the job.
    """
    report, plan = packed.report, packed.report.plan
    language = ticket.language or default_language
    degraded = what_is_wrong(report, ticket.probed_s)
    if not plan.windows:
        _complete_silent(store, ticket, plan, language, degraded)
        return
    work_s = predicted_work_s(plan.speech_s, len(plan.windows), language)
    place = _keep(store, ticket, plan, packed.artefact_key, bucket_of(work_s), degraded)
    if place is not None:
        reach("after_survey_commit")
        transcribe_queue.offer(place)
    elif not _was_kept(store, ticket, packed.artefact_key):
        storage.delete(packed.artefact_key)
        raise LeaseLost


def _was_kept(store: Engine, ticket: Ticket, artefact_key: str) -> bool:
    """Whether an earlier commit of this very survey went through, its answer lost."""
    with transaction(store) as c:
        found = partials.plan_of(c, ticket.job_id)
    return found is not None and found[1] == artefact_key


def _decode(
    storage: Storage, prober: Prober, ticket: Ticket, artefact_key: str, reading: Reading | None
) -> SurveyReport:
    fd = storage.open_fd(ticket.storage_key)
    try:
        # A file without a name: a worker that is killed leaves no speech of anybody lying about.
        with tempfile.TemporaryFile(buffering=0) as packed:
            raw_format = ticket.options.get("raw_format", "")
            out_fd, name = packed.fileno(), ticket.file_name
            report = prober.survey(fd, out_fd, name, raw_format, reading)
            if report.plan.windows:
                packed.seek(0)
                storage.put(artefact_key, iter(partial(packed.read, CHUNK_BYTES), b""), sys.maxsize)
            return report
    finally:
        os.close(fd)


def _keep(
    store: Engine,
    ticket: Ticket,
    plan: Plan,
    artefact_key: str,
    bucket: int,
    degraded: str | None,
) -> Waiting | None:
    with transaction(store) as c:
        place = jobs.keep_survey(c, ticket, plan, bucket, degraded)
        if place is not None:
            partials.keep_plan(c, ticket.job_id, plan, artefact_key)
    return place


def what_is_wrong(report: SurveyReport, probed_s: float | None) -> str | None:
    """Why words may be missing or times wrong, for people; None when the sound is sound.

    `probed_s` is the length found before decoding, seconds.
    """
    plan = report.plan
    reasons = []
    if report.damaged_packets:
        reasons.append(
            f"{report.damaged_packets} of {report.packets} packets of audio could not be decoded"
        )
    if report.longest_gap is not None and plan.silence_filled_s >= LEAST_TOLD_S:
        reasons.append(_filled(report, report.longest_gap))
    decoded_s = plan.duration_s - plan.silence_filled_s
    lengths_s = (decoded_s, plan.duration_s)
    if probed_s is not None and all(_differ(probed_s, length_s) for length_s in lengths_s):
        reasons.append(f"{probed_s:.1f} s were expected and {decoded_s:.1f} s could be decoded")
    return "; ".join(reasons) or None


def _filled(report: SurveyReport, longest: Span) -> str:
    filled_s = report.plan.silence_filled_s
    if report.gaps == 1:
        where = f"at {longest.start_s:.1f} s"
    else:
        where = f"at {report.gaps} places, the longest at {longest.start_s:.1f} s,"
    return f"no sound for {filled_s:.1f} s {where} was filled with silence"


def _differ(probed_s: float, length_s: float) -> bool:
    apart_s = abs(probed_s - length_s)
    return apart_s > MISMATCH_S and apart_s > MISMATCH_SHARE * max(probed_s, length_s)


def _complete_silent(
    store: Engine, ticket: Ticket, plan: Plan, language: str, degraded: str | None
) -> None:
    silent = compose(
        ticket.job_id,
        plan,
        {},
        Spoken(language if language != AUTO else UNDETERMINED),
        probed_s=ticket.probed_s,
        options=ticket.options,
        provenance={},
    )
    with transaction(store) as c:
        if not jobs.keep_transcript(c, ticket, silent, plan, degraded):
            raise LeaseLost
