"""join: the legs of one call, each a job of its own, become one transcript when somebody asks.

Nothing is stored: a leg that comes late, is tried again or erased changes the next answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine

from pipeline.caller import Caller
from pipeline.errors import BadRequest, Erased, NoSuchCall, TranscriptNotReady
from pipeline.job import JobView, State, public_status
from pipeline.store import calls
from pipeline.store.session import transaction
from pipeline.transcript.legs import Leg, Place, distinct, join, kept_place

LEGS = 32
"""Recordings one call may have: conferences have fewer, and each of them is read to join them."""

NAMED_AT_MOST = 5
"""Legs a refusal names one by one."""


@dataclass(frozen=True)
class Recording:
    """One recording of a call."""

    view: JobView
    place: Place
    replaced_by: str | None = None
    """The job that was sent again for the same leg at the same time, and counts in its place."""


def recordings(store: Engine, call_id: str, caller: Caller) -> list[Recording]:
    """The recordings of a call that exist for `caller`, the oldest first. Raises `NoSuchCall`,
    `BadRequest`, `PartDown`.

    A leg that was named, and sent again for the same moment of the call, counts once: the newest
    that has not failed or been cancelled.
    """
    with transaction(store) as c:
        views = calls.recordings_of(c, call_id, LEGS + 1, caller)
    if not views:
        raise NoSuchCall
    if len(views) > LEGS:
        raise BadRequest(f"More than {LEGS} recordings name this call: they are not joined.")
    places = distinct([kept_place(view.metadata, view.file_name) for view in views])
    counts: dict[tuple[str, float], JobView] = {}
    for view, place in zip(views, places, strict=True):
        before = counts.get((place.label, place.offset_s))
        if before is None or not _is_lost(view) or _is_lost(before):
            counts[place.label, place.offset_s] = view
    made = []
    for view, place in zip(views, places, strict=True):
        newest = counts[place.label, place.offset_s].id
        made.append(Recording(view, place, None if newest == view.id else newest))
    return made


def _is_lost(view: JobView) -> bool:
    return view.state in (State.FAILED, State.CANCELLED)


def joined(store: Engine, call_id: str, found: list[Recording]) -> dict[str, Any]:
    """The call's document, once all legs that count are completed.

    Raises `TranscriptNotReady`, which names those that are not; `Erased` when the days of one were
    over; `PartDown`.
    """
    counting = [one for one in found if one.replaced_by is None]
    with transaction(store) as c:
        bodies = calls.transcripts_of(c, [one.view.id for one in counting])
    missing = [one for one in counting if one.view.id not in bodies]
    erased = [one.place.label for one in missing if one.view.transcript_erased_at is not None]
    if erased:
        raise Erased(f"The days of its transcripts were over: legs {', '.join(erased)}.")
    if missing:
        raise TranscriptNotReady(_why(missing, len(counting)))
    return join(call_id, [Leg(o.view.id, o.place, bodies[o.view.id]) for o in counting])


def joined_so_far(
    call_id: str, found: list[Recording], so_far: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """The same of what is heard: `so_far` has the documents of those legs of which anything is, by
    job. With `partial`, `progress` (0..1, each leg as long as it lasts) and `missing`, the legs
    whose words are not all there.

    Raises `TranscriptNotReady` when nothing is heard of any leg.
    """
    counting = [one for one in found if one.replaced_by is None]
    legs = [Leg(o.view.id, o.place, so_far[o.view.id]) for o in counting if o.view.id in so_far]
    if not legs:
        raise TranscriptNotReady(_why(counting, len(counting)))
    done = {leg.job_id: float(leg.body.get("progress", 1.0)) for leg in legs}
    weights = {one.view.id: one.view.duration_s or 1.0 for one in counting}
    heard_s = sum(weight * done.get(job_id, 0.0) for job_id, weight in weights.items())
    missing = [
        {"job_id": one.view.id, "leg": one.place.label, "status": public_status(one.view.state)}
        for one in counting
        if so_far.get(one.view.id, {}).get("partial", True)
    ]
    return {
        **join(call_id, legs),
        "partial": bool(missing),
        "progress": round(heard_s / sum(weights.values()), 4),
        "missing": missing,
    }


def _why(missing: list[Recording], of: int) -> str:
    told = [f"{one.place.label} ({_stands(one.view)})" for one in missing[:NAMED_AT_MOST]]
    more = len(missing) - NAMED_AT_MOST
    rest = f" and {more} more" if more > 0 else ""
    verb = "has" if len(missing) == 1 else "have"
    return f"{len(missing)} of {of} legs {verb} no transcript: {', '.join(told)}{rest}."


def _stands(view: JobView) -> str:
    status = public_status(view.state)
    return f"{status}: {view.error_code}" if view.error_code else status
