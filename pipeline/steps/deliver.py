"""deliver: the heard windows become one transcript, committed once under the fence.

Only then is the packed speech erased and the lease dropped: a worker killed in between leaves a
finished job and litter that the next one to look sweeps up.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine

from pipeline.engine import Heard
from pipeline.errors import LeaseLost, PartDown
from pipeline.intake.storage import Storage
from pipeline.job import Ticket
from pipeline.logs import log
from pipeline.recording import Plan, Transcript
from pipeline.store import jobs, partials
from pipeline.store.session import transaction
from pipeline.transcript.merge import merge


def deliver(
    store: Engine,
    storage: Storage,
    ticket: Ticket,
    plan: Plan,
    artefact_key: str,
    heard: dict[int, Heard],
    provenance: dict[str, Any],
) -> Transcript:
    """Merge and commit. Raises `LeaseLost` when the fence does not hold: nothing was written."""
    segments = merge(plan, heard)
    transcript = Transcript(
        job_id=ticket.job_id,
        text=" ".join(segment.text for segment in segments),
        language=next(iter(heard.values())).language,
        duration_s=plan.duration_s,
        segments=segments,
        provenance={**provenance, "plan_hash": plan.plan_hash, "options": ticket.options},
    )
    with transaction(store) as c:
        if not jobs.keep_transcript(c, ticket, transcript):
            raise LeaseLost
        partials.drop_windows(c, ticket.job_id)
    try:
        storage.delete(artefact_key)
    except PartDown as down:
        log().warning("artefact_left", job_id=ticket.job_id, why=down.message)
    return transcript
