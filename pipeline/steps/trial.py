"""trial: two orders of work in turn on live work, block by block, until it is clear or over.

`begin` starts one, `tick` is an errand: it sets the policy of the present block, compares after
each pair of blocks, and ends the trial. All state is the trial's row and the clock of Postgres, so
any errands worker may go on with it, and one that was away for a while finds the block of now.
Every change of policy is written down with its reason; a person's word ends the trial (`stop`).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Engine

from pipeline.errors import BadRequest, NoSuchTrial, TrialRunning
from pipeline.logs import log
from pipeline.queue.redis_queue import RedisQueue
from pipeline.scheduling import switchback
from pipeline.scheduling.adaptive import Mode
from pipeline.scheduling.policies import Policy
from pipeline.scheduling.switchback import Block, Comparison, Verdict
from pipeline.store import policies, trials
from pipeline.store.session import transaction
from pipeline.store.trials import Trial


def begin(
    store: Engine,
    queues: Mapping[str, RedisQueue],
    start: tuple[Policy, Mode],
    policy_b: Policy,
    *,
    block_s: float,
    blocks: int,
    keep_better: bool = False,
    seed: int | None = None,
) -> Trial:
    """Try `policy_b` against the policy in force, in `blocks` (even) blocks of `block_s` seconds.

    `start`: the policy in force while nobody ever decided, and who decides it. `seed`: of the order
    of the blocks; None: drawn. Raises `TrialRunning`, `BadRequest` for a B that is in force, and
    `PartDown`.
    """
    with transaction(store) as c:
        policies.await_turn(c)
        last = policies.newest(c)
        policy_a, mode_a = (last.policy, last.mode) if last else start
        if trials.running(c):
            raise TrialRunning
        if policy_a == policy_b:
            raise BadRequest(f"{policy_b} is in force already: there is nothing to compare.")
        trial = trials.begin(
            c,
            policy_a,
            mode_a,
            policy_b,
            block_s=block_s,
            blocks=blocks,
            seed=secrets.randbits(31) if seed is None else seed,
            keep_better=keep_better,
        )
        policy = _enter(c, trial, 0)
    _tell(queues.values(), policy)
    return trial


def tick(store: Engine, queues: Mapping[str, RedisQueue]) -> Policy | None:
    """Go on with the trial that runs, if one does; the policy it changed to, or None.

    Raises `PartDown`: the next beat goes on, and the reconciler tells Redis what was decided.
    """
    with transaction(store) as c:
        trial = trials.running(c)
        if trial is None or not policies.take_turn(c):
            return None
        trial = trials.running(c)  # it may have been ended before the turn was ours
        policy = _go_on(c, trial) if trial else None
    if policy is not None:
        _tell(queues.values(), policy)
    return policy


def call_off(store: Engine, queues: Mapping[str, RedisQueue], trial_id: int) -> Trial:
    """End this trial and go back to A; one that has ended stays as it ended.

    Raises `NoSuchTrial` and `PartDown`.
    """
    back: Policy | None = None
    with transaction(store) as c:
        policies.await_turn(c)
        trial = trials.trial(c, trial_id)
        if trial is not None and trial.state == trials.RUNNING:
            reason = f"Trial {trial.id} was stopped by hand. Back to {trial.policy_a}."
            back = _end(c, trial, trials.STOPPED, trial.policy_a, trial.mode_a, reason)
            trial = trials.trial(c, trial_id)
    if trial is None:
        raise NoSuchTrial
    _tell(queues.values(), back)
    return trial


def stop(c: Connection, reason: str) -> Trial | None:
    """End the trial that runs; None when none does. Whoever calls decides the policy then."""
    trial = trials.running(c)
    if trial is not None:
        trials.end(c, trial.id, trials.STOPPED, reason)
        log().info("trial_stopped", trial=trial.id, why=reason)
    return trial


# -- the parts of a tick --------------------------------------------------------------------


def _go_on(c: Connection, trial: Trial) -> Policy | None:
    block = math.floor(trial.age_s / trial.block_s)
    ended = min(block, trial.blocks)
    if ended // 2 > (trial.result or {}).get("pairs", 0):
        seen = _compare(c, trial, ended)
        trials.note(c, trial.id, asdict(seen))
        found = switchback.verdict(seen)
        if found is Verdict.WORSE:
            return _return(c, trial, f"{trial.policy_b} is worse {switchback.in_words(seen)}.")
        if block >= trial.blocks:
            return _conclude(c, trial, seen, found)
    return _enter(c, trial, min(block, trial.blocks - 1))


def _compare(c: Connection, trial: Trial, ended: int) -> Comparison:
    """What the first `ended` blocks show."""
    order = switchback.sides(trial.blocks, trial.seed)
    blocks: list[list[float]] = [[] for _ in range(ended)]
    for arrived_s, response_s in trials.responses(c, trial):
        block = switchback.block_of(arrived_s, trial.block_s)
        if block is not None and block < ended:
            blocks[block].append(response_s)
    shown = [Block(side, values) for side, values in zip(order, blocks, strict=False)]
    return switchback.compare(shown, trial.blocks // 2, trial.seed)


def _conclude(c: Connection, trial: Trial, seen: Comparison, found: Verdict) -> Policy | None:
    words = switchback.in_words(seen)
    if found is not Verdict.BETTER:
        return _return(c, trial, f"{trial.policy_b} is not shown to be better {words}.")
    if not trial.keep_better:
        return _return(c, trial, f"{trial.policy_b} is better {words}; nobody asked to keep it.")
    reason = f"Trial {trial.id}: {trial.policy_b} is better {words}, and kept."
    return _end(c, trial, trials.KEPT, trial.policy_b, Mode.FIXED, reason)


def _return(c: Connection, trial: Trial, why: str) -> Policy | None:
    reason = f"Trial {trial.id}: {why} Back to {trial.policy_a}."
    return _end(c, trial, trials.RETURNED, trial.policy_a, trial.mode_a, reason)


def _end(
    c: Connection, trial: Trial, state: str, policy: Policy, mode: Mode, reason: str
) -> Policy | None:
    trials.end(c, trial.id, state, reason)
    policies.change_policy(c, policy, reason, mode)
    log().info("trial_ended", trial=trial.id, state=state, why=reason)
    return policy


def _enter(c: Connection, trial: Trial, block: int) -> Policy | None:
    """Write the policy of `block` down; None when it is in force already."""
    side = switchback.sides(trial.blocks, trial.seed)[block]
    policy = trial.policy_a if side == switchback.A else trial.policy_b
    last = policies.newest(c)
    if last and last.mode is Mode.TRIAL and last.policy == policy:
        return None
    reason = f"Trial {trial.id}, block {block + 1} of {trial.blocks}: {side}."
    policies.change_policy(c, policy, reason, Mode.TRIAL)
    return policy


def _tell(queues: Iterable[RedisQueue], policy: Policy | None) -> None:
    for queue in queues:
        if policy is not None:
            queue.set_policy(policy)


def as_result(trial: Trial) -> dict[str, Any]:
    """The comparison of a trial as it last stood; all empty before its first pair of blocks."""
    return trial.result or asdict(Comparison(0, 0, 0, {}))
