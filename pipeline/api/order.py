"""By which rule work is ordered."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from pipeline.api.described import problems
from pipeline.api.given import GivenParts, needs
from pipeline.api.queue_bodies import PolicyChange, PolicyHistory, PolicyView
from pipeline.caller import Scope
from pipeline.errors import BadRequest, PartDown
from pipeline.scheduling.adaptive import AUTO, Mode, is_auto
from pipeline.scheduling.policies import parse_policy
from pipeline.steps import trial
from pipeline.store import policies
from pipeline.store.policies import PolicyRow
from pipeline.store.session import transaction

router = APIRouter(tags=["queue"], dependencies=needs(Scope.OPERATE))


@router.get("/v1/policy", summary="Read the policy", responses=problems(PartDown))
def read_policy(parts: GivenParts) -> PolicyView:
    """The order of work: what was asked for, what is in force now, who decides it, and why."""
    with transaction(parts.store) as c:
        last = policies.newest(c)
    if last is not None:
        return _policy_view(last)
    settings = parts.settings
    return PolicyView(
        policy=AUTO if settings.start_mode is Mode.AUTO else str(settings.start_policy),
        in_force=str(settings.start_policy),
        mode=settings.start_mode.value,
        reason=None,
        changed_at=None,
    )


@router.get(
    "/v1/policy/history",
    summary="Read earlier policies",
    responses=problems(BadRequest, PartDown),
)
def read_policy_history(
    parts: GivenParts,
    limit: Annotated[int, Query(ge=1, le=1000, description="Changes in the answer")] = 20,
) -> PolicyHistory:
    """The last changes of the order of work, by whomever, newest first."""
    with transaction(parts.store) as c:
        found = policies.changes(c, limit)
    return PolicyHistory(changes=[_policy_view(row) for row in found])


@router.put("/v1/policy", summary="Change the policy", responses=problems(BadRequest, PartDown))
def change_policy(parts: GivenParts, change: PolicyChange) -> PolicyView:
    """Change the order of work, from the next claim on; jobs that wait already follow it too.

    `auto` lets the backlog decide from now on; a policy ends that, and a running trial. After a 503
    it may be written down and not in force: ask again.
    """
    try:
        asked = None if is_auto(change.policy) else parse_policy(change.policy)
    except ValueError as refused:
        raise BadRequest(f"{refused}, or auto.") from None
    if "\0" in change.reason:
        raise BadRequest("reason holds a NUL character, which cannot be kept.")
    with transaction(parts.store) as c:
        policies.await_turn(c)
        ended = trial.stop(c, f"the policy was changed: {change.policy.strip()}")
        before = ended.policy_a if ended else policies.newest_policy(c)
        policy = asked or before or parts.settings.start_policy
        mode = Mode.FIXED if asked else Mode.AUTO
        policies.change_policy(c, policy, change.reason, mode)
        (last,) = policies.changes(c, 1)
    for queue in parts.queues.values():
        queue.set_policy(policy)
    return _policy_view(last)


def _policy_view(row: PolicyRow) -> PolicyView:
    return PolicyView(
        policy=AUTO if row.mode is Mode.AUTO else str(row.policy),
        in_force=str(row.policy),
        mode=row.mode.value,
        reason=row.reason,
        changed_at=row.changed_at,
    )
