"""tidy: what crashes leave behind is swept up, from what Postgres says is still needed.

Packed speech of jobs that ended or were surveyed again, recordings whose row was never committed,
windows of ended jobs, answers to old requests, what webhooks were told long ago. Nothing young is
touched unless its job has ended or was erased: somebody may be writing it.
"""

from __future__ import annotations

from sqlalchemy import Engine

from pipeline.intake.storage import TOMBSTONES, Storage
from pipeline.logs import log
from pipeline.store import deliveries, index, partials, submissions
from pipeline.store.session import transaction

YOUNG_S = 3600.0
"""Longer than any survey or upload takes."""

PAGE = 500


def tidy(store: Engine, storage: Storage, packed_days: float = 0.0) -> int:
    """Sweep once; returns how many things were erased. Raises `PartDown`.

    `packed_days`: how long packed speech is kept after its job ended.
    """
    with transaction(store) as c:
        partials.drop_windows_of_ended(c)
        submissions.drop_old(c)
        deliveries.drop_old(c)
    buried = {key.partition("/")[2] for key, _ in storage.keys(TOMBSTONES)}
    erased = 0
    for folder in ("packed", "recordings"):
        keys = storage.keys(folder)
        for start in range(0, len(keys), PAGE):
            erased += _tidy_page(store, storage, keys[start : start + PAGE], packed_days, buried)
    if erased:
        log().info("tidied", erased=erased)
    return erased


def packed_due(store: Engine, storage: Storage, packed_days: float) -> int:
    """How much packed speech of ended jobs `tidy` would erase now. Raises `PartDown`."""
    keys, found = [key for key, _ in storage.keys("packed")], 0
    for start in range(0, len(keys), PAGE):
        with transaction(store) as c:
            _, ended = index.needed_keys(c, keys[start : start + PAGE], packed_days)
        found += len(ended)
    return found


def _tidy_page(
    store: Engine,
    storage: Storage,
    keys: list[tuple[str, float]],
    packed_days: float,
    buried: set[str],
) -> int:
    """`keys` with their ages in seconds; `buried`: jobs that were erased."""
    with transaction(store) as c:
        needed, ended = index.needed_keys(c, [key for key, _ in keys], packed_days)
    waste = [
        key
        for key, age_s in keys
        if key not in needed
        and (key in ended or age_s > YOUNG_S or index.job_of_key(key) in buried)
    ]
    for key in waste:
        storage.delete(key)
    return len(waste)
