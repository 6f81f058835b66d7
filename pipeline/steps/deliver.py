"""deliver: the heard windows become one transcript, committed once under the fence.

What the job took of the engine is committed with it, foretold and true: the work model learns from
it. Only then is the packed speech erased and the lease dropped: a worker killed in between leaves a
finished job and litter that the next one to look sweeps up. Before that moment `so_far` merges what
is heard, in the same form, for those who do not want to wait.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine

from pipeline.crash_points import reach
from pipeline.engine import Heard
from pipeline.errors import Erased, LeaseLost, NoSuchJob, PartDown, TranscriptNotReady
from pipeline.intake.storage import Storage
from pipeline.job import AUTO, FINAL, TRANSCRIBE, JobView, State, Ticket, public_status
from pipeline.logs import log
from pipeline.recording import Plan, Transcript
from pipeline.scheduling.learning import Done
from pipeline.scheduling.work import REFERENCE, WorkModel
from pipeline.store import jobs, partials, views, work
from pipeline.store.session import transaction
from pipeline.transcript.channel_languages import UNDETERMINED
from pipeline.transcript.document import Spoken, compose
from pipeline.transcript.worth import told_doubts

TRANSCRIPT_ERASED = "The transcript's days were over: it was erased on"


def deliver(
    store: Engine,
    storage: Storage,
    ticket: Ticket,
    plan: Plan,
    artefact_key: str,
    heard: dict[int, Heard],
    provenance: dict[str, Any],
    spoken: Spoken | None = None,
    *,
    keep_packed: bool = False,
) -> Transcript:
    """Merge and commit. `spoken`: the languages it was heard in; None: that of its first window.
    `keep_packed`: the packed speech has days of its own, `tidy` erases it then.

    Raises `LeaseLost` when the fence does not hold: nothing was written.
    """
    spoken = spoken or Spoken(next(iter(heard.values())).language)
    model = str(provenance["model"])
    transcript = compose(
        ticket.job_id,
        plan,
        heard,
        spoken,
        probed_s=ticket.probed_s,
        options=ticket.options,
        provenance=provenance,
    )
    with transaction(store) as c:
        if not jobs.keep_transcript(c, ticket, transcript, degraded=told_doubts(heard)):
            raise LeaseLost
        took = _took(plan, heard, spoken.main, work.newest_model(c, model) or REFERENCE)
        work.keep_done(c, ticket.job_id, model, took)
        partials.drop_windows(c, ticket.job_id)
    reach("after_transcript_commit")
    try:
        if not keep_packed:
            storage.delete(artefact_key)
    except PartDown as down:
        log().warning("artefact_left", job_id=ticket.job_id, why=down.message)
    return transcript


def _took(plan: Plan, heard: dict[int, Heard], language: str, foretelling: WorkModel) -> Done:
    """What all windows took, those heard by earlier attempts included."""
    return Done(
        language=language,
        speech_s=plan.speech_s,
        windows=len(plan.windows),
        tokens=sum(window.tokens for window in heard.values()),
        busy_s=sum(window.busy_s for window in heard.values()),
        predicted_s=foretelling.predicted_s(plan.speech_s, len(plan.windows), language),
    )


def so_far(store: Engine, job_id: str) -> dict[str, Any]:
    """The transcript's document as far as it is known, with `partial` and `progress` (0..1).

    Once the job is completed this is the whole of it, with `partial` false. Raises `NoSuchJob`;
    `TranscriptNotReady` before the survey, and when the job failed or was cancelled; `Erased`;
    `PartDown`.
    """
    while True:
        with transaction(store) as c:
            body = views.transcript_body(c, job_id)
            if body is not None:
                return {**body, "partial": False, "progress": 1.0}
            view = views.view(c, job_id)
            planned = partials.plan_of(c, job_id)
            saved = partials.windows_so_far(c, job_id)
        if view is None:
            raise NoSuchJob
        if view.transcript_erased_at is not None:
            raise Erased(f"{TRANSCRIPT_ERASED} {view.transcript_erased_at:%Y-%m-%d}.")
        if view.state is not State.COMPLETED:  # else it was, between two questions
            return _document_so_far(view, planned[0] if planned else None, saved)


def _document_so_far(
    view: JobView, plan: Plan | None, saved: dict[int, dict[str, Any]]
) -> dict[str, Any]:
    if view.state in FINAL:
        reason = f" ({view.error_code}): {view.error_message}" if view.error_code else "."
        raise TranscriptNotReady(f"The job is {public_status(view.state)}{reason}")
    if plan is None or view.state not in (TRANSCRIBE.waiting, TRANSCRIBE.working):
        raise TranscriptNotReady(f"Nothing is heard yet: the job is {public_status(view.state)}.")
    heard = {index: Heard.from_json(raw) for index, raw in saved.items()}
    first = next(iter(heard.values()), None)
    language = view.detected_language or (first.language if first else view.language or "")
    if language == AUTO:
        language = UNDETERMINED
    composed = compose(
        view.id,
        plan,
        heard,
        Spoken(language, view.channel_languages),
        probed_s=view.probed_s,
        options=view.options,
        provenance={"model": view.model},
    )
    return {**composed.to_json(), "partial": True, "progress": view.progress}
