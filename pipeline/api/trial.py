"""Trying an order of work: foretold by recorded arrivals, then in turn with the one in force."""

from __future__ import annotations

import math
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from pipeline.api.described import problems
from pipeline.api.given import GivenParts, needs
from pipeline.api.queue_bodies import (
    ComparisonView,
    ReplayedView,
    ReplayView,
    TrialList,
    TrialRequest,
    TrialView,
)
from pipeline.caller import Scope
from pipeline.errors import BadRequest, NoSuchTrial, PartDown, TooFewJobs, TrialRunning
from pipeline.scheduling.policies import Policy, parse_policy
from pipeline.steps import trial as step
from pipeline.steps.replay import Replay, replay
from pipeline.store import policies, trials
from pipeline.store.session import transaction
from pipeline.store.trials import Trial

router = APIRouter(tags=["queue"], dependencies=needs(Scope.OPERATE))

TrialId = Annotated[int, Path(description="As `POST /v1/policy/trials` gave it", ge=1, lt=2**63)]


@router.post(
    "/v1/policy/trials",
    status_code=201,
    summary="Try a policy",
    responses=problems(BadRequest, TrialRunning, PartDown),
)
def begin_trial(parts: GivenParts, asked: TrialRequest) -> TrialView:
    """Try a policy on live work, in turn with the one in force, block by block.

    It goes back by itself as soon as the new one is worse for certain. A change of the policy ends
    it.
    """
    settings = parts.settings
    trial = step.begin(
        parts.store,
        parts.queues,
        (settings.start_policy, settings.start_mode),
        _policy(asked.policy),
        block_s=asked.block_s,
        blocks=asked.blocks,
        keep_better=asked.keep_better,
        seed=asked.seed,
    )
    return _view(trial)


@router.get("/v1/policy/trials", summary="List trials", responses=problems(BadRequest, PartDown))
def list_trials(
    parts: GivenParts,
    limit: Annotated[int, Query(ge=1, le=1000, description="Trials in the answer")] = 20,
) -> TrialList:
    """The last trials, the newest first."""
    with transaction(parts.store) as c:
        return TrialList(trials=[_view(trial) for trial in trials.newest(c, limit)])


@router.get(
    "/v1/policy/trials/{trial_id}",
    summary="Read a trial",
    responses=problems(BadRequest, NoSuchTrial, PartDown),
)
def read_trial(parts: GivenParts, trial_id: TrialId) -> TrialView:
    """How a trial stands, or how it ended and why."""
    with transaction(parts.store) as c:
        return _view(_existing(trials.trial(c, trial_id)))


@router.post(
    "/v1/policy/trials/{trial_id}/stop",
    summary="Stop a trial",
    responses=problems(BadRequest, NoSuchTrial, PartDown),
)
def stop_trial(parts: GivenParts, trial_id: TrialId) -> TrialView:
    """End a trial and go back to the policy before it; one that has ended stays as it ended."""
    return _view(step.call_off(parts.store, parts.queues, trial_id))


@router.get(
    "/v1/policy/replay",
    summary="Foretell a policy",
    responses=problems(BadRequest, TooFewJobs, PartDown),
)
def replay_policy(
    parts: GivenParts,
    policy: Annotated[str, Query(max_length=100, description="The policy asked about")],
    hours: Annotated[
        float, Query(gt=0, le=168, description="How far back arrivals are taken")
    ] = 6.0,
) -> ReplayView:
    """Recorded arrivals of the last hours, simulated under the policy in force and under another.

    It touches no live work. The simulation begins with an empty queue, and knows nothing of
    surveys, outages and other work of the machine.
    """
    asked = _policy(policy)
    with transaction(parts.store) as c:
        under_way = trials.running(c)
        decided = under_way.policy_a if under_way else policies.newest_policy(c)
    in_force = decided or parts.settings.start_policy
    found = replay(parts.store, parts.queues, (in_force, asked), hours, parts.settings.language)
    return _replay_view(found)


def _replay_view(found: Replay) -> ReplayView:
    a, b = (
        ReplayedView(
            policy=str(one.policy),
            p50_s=one.p50_s,
            p95_s=one.p95_s,
            p99_s=one.p99_s,
            max_s=one.max_s,
        )
        for one in found.policies
    )
    return ReplayView(
        jobs=found.jobs, hours=found.hours, slots=found.slots, speed=found.speed, a=a, b=b
    )


def _policy(text: str) -> Policy:
    try:
        return parse_policy(text)
    except ValueError as refused:
        raise BadRequest(f"{refused}.") from None


def _existing(trial: Trial | None) -> Trial:
    if trial is None:
        raise NoSuchTrial
    return trial


def _view(trial: Trial) -> TrialView:
    block = None
    if trial.state == trials.RUNNING:
        block = min(trial.blocks, 1 + math.floor(trial.age_s / trial.block_s))
    same: dict[str, Any] = {
        name: getattr(trial, name)
        for name in ("id", "state", "block_s", "blocks", "seed", "keep_better", "reason")
    }
    return TrialView(
        **same,
        policy_a=str(trial.policy_a),
        policy_b=str(trial.policy_b),
        block=block,
        comparison=ComparisonView.model_validate(step.as_result(trial)),
        started_at=trial.started_at,
        ended_at=trial.ended_at,
    )
