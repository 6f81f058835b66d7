"""retire: what was kept for its days is erased: recordings, transcripts, records of accesses.

Without leader, in pages, the oldest end first. Of each recording the sound goes first and then the
row says so: cut short in between it is asked for again, and what is gone is gone. Whole jobs whose
days are over are erased by steps/erase.py, packed speech is swept up by steps/tidy.py.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import Connection, Engine

from pipeline.crash_points import reach
from pipeline.intake.storage import Storage
from pipeline.logs import log
from pipeline.store import retention
from pipeline.store.retention import Due, Keep, Old
from pipeline.store.session import transaction

PAGE = 100
"""Recordings or transcripts erased in one transaction: a few seconds where storage is slow."""

ROWS = 500
"""Accesses forgotten in one transaction."""


def retire(store: Engine, storage: Storage, keep: Keep) -> Due:
    """Erase what is due; returns how much of each that was. Raises `PartDown`: ask again later."""

    def recordings(c: Connection, since: datetime | None) -> list[Old]:
        page = retention.audio_page(c, keep.audio_days or 0.0, since, PAGE)
        for old in page:
            storage.delete(old.storage_key)
        reach("retire_after_sound")
        retention.audio_erased(c, [old.job_id for old in page])
        return page

    def transcripts(c: Connection, since: datetime | None) -> list[Old]:
        page = retention.transcripts_page(c, keep.transcripts_days or 0.0, since, PAGE)
        retention.erase_transcripts(c, [old.job_id for old in page])
        return page

    done = Due(
        audio=0 if keep.audio_days is None else _page_by_page(store, recordings),
        transcripts=0 if keep.transcripts_days is None else _page_by_page(store, transcripts),
        accesses=_forget_accesses(store, keep),
    )
    if done != Due():
        log().info(
            "retired", audio=done.audio, transcripts=done.transcripts, accesses=done.accesses
        )
    return done


def _page_by_page(store: Engine, erase: Callable[[Connection, datetime | None], list[Old]]) -> int:
    """All pages, each in a transaction of its own; how many things that were."""
    erased, since = 0, None
    while True:
        with transaction(store) as c:
            page = erase(c, since)
        erased += len(page)
        if len(page) < PAGE:
            return erased
        since = page[-1].ended_at


def _forget_accesses(store: Engine, keep: Keep) -> int:
    forgotten = 0
    while True:
        with transaction(store) as c:
            page = retention.drop_accesses(c, keep, ROWS)
        forgotten += page
        if page < ROWS:
            return forgotten
