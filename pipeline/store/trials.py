"""Trials of a policy on live work, and the jobs by which they are judged. One runs at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from pipeline.job import State
from pipeline.scheduling.adaptive import Mode
from pipeline.scheduling.policies import Policy, parse_policy
from pipeline.store.rows import first_id_since, now
from pipeline.store.tables import jobs, trials

RUNNING, KEPT, RETURNED, STOPPED = "running", "kept", "returned", "stopped"
"""How a trial stands: under way; B stayed; A came back; somebody ended it."""

JOBS_LIMIT = 200_000
"""Jobs a trial is judged by at most, the first that came."""


@dataclass(frozen=True)
class Trial:
    """One trial."""

    id: int
    policy_a: Policy
    mode_a: Mode
    """Who decided A, and decides again when it comes back."""
    policy_b: Policy
    block_s: float
    blocks: int
    seed: int
    keep_better: bool
    state: str
    result: dict[str, Any] | None
    """The comparison as it last stood, see steps/trial.py."""
    reason: str | None
    """Why it ended."""
    started_at: datetime
    ended_at: datetime | None
    age_s: float
    """Seconds since its start, by Postgres' clock."""


def begin(
    c: Connection,
    policy_a: Policy,
    mode_a: Mode,
    policy_b: Policy,
    *,
    block_s: float,
    blocks: int,
    seed: int,
    keep_better: bool,
) -> Trial:
    """A new trial. Whoever begins one holds the right to decide, and has seen that none runs."""
    row = {
        "policy_a": str(policy_a),
        "mode_a": mode_a.value,
        "policy_b": str(policy_b),
        "block_s": block_s,
        "blocks": blocks,
        "seed": seed,
        "keep_better": keep_better,
        "state": RUNNING,
    }
    trial_id = c.execute(insert(trials).values(row).returning(trials.c.id)).scalar_one()
    return _trial(c.execute(_whole().where(trials.c.id == trial_id)).one())


def trial(c: Connection, trial_id: int) -> Trial | None:
    """The trial with this id; None when there is none."""
    found = c.execute(_whole().where(trials.c.id == trial_id)).first()
    return _trial(found) if found else None


def running(c: Connection) -> Trial | None:
    """The trial under way; None when there is none."""
    found = c.execute(_whole().where(trials.c.state == RUNNING)).first()
    return _trial(found) if found else None


def newest(c: Connection, limit: int) -> list[Trial]:
    """The last trials, the newest first."""
    return [_trial(row) for row in c.execute(_whole().order_by(trials.c.id.desc()).limit(limit))]


def note(c: Connection, trial_id: int, result: dict[str, Any]) -> None:
    """Keep how the comparison stands."""
    c.execute(update(trials).where(trials.c.id == trial_id).values(result=result))


def end(c: Connection, trial_id: int, state: str, reason: str) -> None:
    """It has ended so, and why; one that had ended before stays as it ended."""
    values = {"state": state, "reason": reason, "ended_at": now}
    c.execute(
        update(trials).where(trials.c.id == trial_id, trials.c.state == RUNNING).values(values)
    )


def responses(c: Connection, trial: Trial) -> Sequence[tuple[float, float]]:
    """(seconds after the start it arrived, seconds to its end or until now) of each job since.

    Jobs that failed or were cancelled are left out: nobody waited for their result to the end.
    """
    started_ms = trial.started_at.timestamp() * 1000
    arrived_s = ((jobs.c.arrival_ms - started_ms) / 1000).label("arrived_s")
    ended_ms = func.extract("epoch", func.coalesce(jobs.c.completed_at, now)) * 1000
    rows = c.execute(
        select(arrived_s, ((ended_ms - jobs.c.arrival_ms) / 1000).label("response_s"))
        .where(
            # a retried job is older than its arrival, and does not count
            jobs.c.id >= first_id_since(int(started_ms)),
            jobs.c.arrival_ms >= int(started_ms),
            jobs.c.state.not_in([State.FAILED.value, State.CANCELLED.value]),
        )
        .order_by(jobs.c.arrival_ms)
        .limit(JOBS_LIMIT)
    )
    return [(float(row.arrived_s), max(0.0, float(row.response_s))) for row in rows]


def _whole() -> Any:
    return select(trials, func.extract("epoch", now - trials.c.started_at).label("age_s"))


def _trial(row: Any) -> Trial:
    return Trial(
        id=row.id,
        policy_a=parse_policy(row.policy_a),
        mode_a=Mode(row.mode_a),
        policy_b=parse_policy(row.policy_b),
        block_s=row.block_s,
        blocks=row.blocks,
        seed=row.seed,
        keep_better=row.keep_better,
        state=row.state,
        result=row.result,
        reason=row.reason,
        started_at=row.started_at,
        ended_at=row.ended_at,
        age_s=max(0.0, float(row.age_s)),
    )
