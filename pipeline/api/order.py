"""By which rule work is ordered."""

from __future__ import annotations

from fastapi import APIRouter

from pipeline.api.bodies import PolicyChange, PolicyView
from pipeline.api.given import GivenParts
from pipeline.errors import BadRequest
from pipeline.parts import Parts
from pipeline.scheduling.policies import Policy, parse_policy
from pipeline.store import policies
from pipeline.store.session import transaction

router = APIRouter(tags=["queue"])


@router.get("/v1/policy")
def read_policy(parts: GivenParts) -> PolicyView:
    """The order of work, as last decided."""
    with transaction(parts.store) as c:
        return PolicyView(policy=str(_decided(parts, policies.newest_policy(c))))


@router.put("/v1/policy")
def change_policy(parts: GivenParts, change: PolicyChange) -> PolicyView:
    """Change the order of work, from the next claim on; jobs that wait already follow it too.

    After a 503 it may be written down and not in force: ask again.
    """
    try:
        policy = parse_policy(change.policy)
    except ValueError as refused:
        raise BadRequest(f"{refused}.") from None
    if "\0" in change.reason:
        raise BadRequest("reason holds a NUL character, which cannot be kept.")
    with transaction(parts.store) as c:
        policies.change_policy(c, policy, change.reason)
    for queue in parts.queues.values():
        queue.set_policy(policy)
    return PolicyView(policy=str(policy))


def _decided(parts: Parts, newest: Policy | None) -> Policy:
    return newest or parts.settings.start_policy
