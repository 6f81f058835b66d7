"""What was foretold and how it came: a bounded sample, from which calibration learns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, text

from pipeline.job import State
from pipeline.scheduling.calibration import HORIZONS_S, KEPT, ratio
from pipeline.store.tables import forecasts

_horizon = func.width_bucket(
    forecasts.c.raw_s, text(f"ARRAY[{', '.join(map(str, HORIZONS_S))}]::double precision[]")
)


@dataclass(frozen=True)
class Foretold:
    """One forecast of one job."""

    job_id: str
    kind: str
    """Its state then."""
    raw_s: float
    """By queue arithmetic alone."""
    p50_s: float
    p90_s: float


def note(c: Connection, foretold: Sequence[Foretold]) -> None:
    """Keep what was foretold just now; jobs erased meanwhile are left out."""
    if not foretold:
        return
    rows = [{**vars(one), "job_id": UUID(one.job_id)} for one in foretold]
    known = {
        row.id
        for row in c.execute(
            text("SELECT id FROM jobs WHERE id = ANY(:ids) FOR KEY SHARE"),
            {"ids": [row["job_id"] for row in rows]},
        )
    }
    if kept := [row for row in rows if row["job_id"] in known]:
        c.execute(insert(forecasts), kept)


def settle(c: Connection) -> None:
    """Fill in how it came, of jobs completed since; what ended otherwise is no truth and goes.

    Of each kind and horizon only the newest are kept.
    """
    settled = c.execute(
        text(
            "UPDATE forecasts f SET truth_s = extract(epoch FROM j.completed_at - f.made_at)"
            " FROM jobs j WHERE j.id = f.job_id AND f.truth_s IS NULL AND j.state = :done"
            " AND j.completed_at > f.made_at"
        ),
        {"done": State.COMPLETED.value},
    ).rowcount
    c.execute(
        text(
            "DELETE FROM forecasts f USING jobs j WHERE j.id = f.job_id AND f.truth_s IS NULL"
            " AND j.completed_at IS NOT NULL"
        )
    )
    if settled:
        _forget_old(c)


def _forget_old(c: Connection) -> None:
    newest = func.row_number().over(
        partition_by=(forecasts.c.kind, _horizon), order_by=forecasts.c.id.desc()
    )
    settled = select(forecasts.c.id, newest.label("n")).where(forecasts.c.truth_s.is_not(None))
    old = settled.subquery()
    c.execute(delete(forecasts).where(forecasts.c.id.in_(select(old.c.id).where(old.c.n > KEPT))))


def unsettled(c: Connection) -> dict[tuple[str, int], int]:
    """How many still wait for their truth, by kind and horizon."""
    rows = c.execute(
        select(forecasts.c.kind, _horizon.label("horizon"), func.count().label("jobs"))
        .where(forecasts.c.truth_s.is_(None))
        .group_by(forecasts.c.kind, _horizon)
    )
    return {(row.kind, row.horizon): row.jobs for row in rows}


def ratios(c: Connection) -> dict[tuple[str, int], list[float]]:
    """Truth over raw forecast, by kind and horizon, the newest first."""
    rows = c.execute(
        select(forecasts.c.kind, _horizon.label("horizon"), forecasts.c.raw_s, forecasts.c.truth_s)
        .where(forecasts.c.truth_s.is_not(None))
        .order_by(forecasts.c.id.desc())
    )
    found: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        found.setdefault((row.kind, row.horizon), []).append(ratio(row.truth_s, row.raw_s))
    return found


@dataclass(frozen=True)
class Calibrated:
    """How good the kept forecasts of one kind were."""

    kind: str
    forecasts: int
    before_p90: float
    """Part of them whose job ended before its P90, 0..1; should be about 0.9."""
    median_error: float
    """Median of |p50 - truth| / truth."""
    median_ratio: float
    """Median of truth / p50; should be about 1."""


def calibrated(c: Connection) -> list[Calibrated]:
    """The calibration of the sample that is kept, by kind; kinds without any are left out."""
    truth_s = func.greatest(forecasts.c.truth_s, 0.1)

    def median(what: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.percentile_cont(0.5).within_group(what)

    rows = c.execute(
        select(
            forecasts.c.kind,
            func.count().label("forecasts"),
            func.count().filter(forecasts.c.truth_s <= forecasts.c.p90_s).label("before"),
            median(func.abs(forecasts.c.p50_s - truth_s) / truth_s).label("error"),
            median(truth_s / forecasts.c.p50_s).label("ratio"),
        )
        .where(forecasts.c.truth_s.is_not(None))
        .group_by(forecasts.c.kind)
        .order_by(forecasts.c.kind)
    )
    return [
        Calibrated(row.kind, row.forecasts, row.before / row.forecasts, row.error, row.ratio)
        for row in rows
    ]
