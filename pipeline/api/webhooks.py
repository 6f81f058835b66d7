"""Webhooks: where a tenant's jobs that end are told of, the log of that, and sending it again."""

from __future__ import annotations

import contextlib
from typing import Annotated
from urllib.parse import urlsplit
from uuid import UUID

import uuid_utils
from fastapi import APIRouter, Depends, Path, Query, Response

from pipeline.api.described import problems
from pipeline.api.given import GivenParts, GivenSubmitter
from pipeline.api.webhook_bodies import (
    DeliveryBody,
    DeliveryPage,
    NewWebhook,
    Resumed,
    WebhookBody,
    WebhookList,
    WebhookRequest,
)
from pipeline.errors import BadRequest, NoSuchDelivery, NoSuchWebhook, PartDown
from pipeline.fetch.addresses import is_public, written_address
from pipeline.fetch.urls import checked_url
from pipeline.parts import Parts
from pipeline.store import deliveries, outbox, webhooks
from pipeline.store.deliveries import Delivery, Status
from pipeline.store.session import transaction
from pipeline.store.webhooks import Webhook
from pipeline.webhooks import new_secret

router = APIRouter(tags=["webhooks"])

AT_MOST = 20
"""Webhooks of one tenant: each is written to when one of its jobs ends."""


def _id_of(kind: type[NoSuchWebhook] | type[NoSuchDelivery], text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise kind from None


def _webhook(
    parts: GivenParts,
    caller: GivenSubmitter,
    webhook_id: Annotated[str, Path(description="The id `POST /v1/webhooks` gave")],
) -> Webhook:
    """The webhook; one of another tenant is none."""
    with transaction(parts.store) as c:
        found = webhooks.webhook(c, _id_of(NoSuchWebhook, webhook_id))
    if found is None or not caller.sees(found.tenant):
        raise NoSuchWebhook
    return found


def _delivery_id(
    delivery_id: Annotated[str, Path(description="`id` of a delivery in the log")],
) -> str:
    return _id_of(NoSuchDelivery, delivery_id)


GivenWebhook = Annotated[Webhook, Depends(_webhook)]
GivenDeliveryId = Annotated[str, Depends(_delivery_id)]


@router.post(
    "/v1/webhooks",
    status_code=201,
    summary="Add a webhook",
    responses=problems(BadRequest, PartDown),
)
def add_webhook(parts: GivenParts, caller: GivenSubmitter, asked: WebhookRequest) -> NewWebhook:
    """Be told of your jobs that end from now on. The answer shows the secret, this once."""
    url = _checked(parts, asked.url)
    webhook_id, secret = str(uuid_utils.uuid7()), new_secret()
    events = list(dict.fromkeys(asked.events))
    with transaction(parts.store) as c:
        if len(webhooks.of_tenant(c, caller.tenant)) >= AT_MOST:
            raise BadRequest(f"There are {AT_MOST} webhooks already, which is as many as can be.")
        webhooks.add(c, webhook_id, caller.tenant, url, secret, events)
        return NewWebhook.with_secret(_existing(webhooks.webhook(c, webhook_id)), secret)


@router.get("/v1/webhooks", summary="List webhooks", responses=problems(PartDown))
def list_webhooks(parts: GivenParts, caller: GivenSubmitter) -> WebhookList:
    """Your webhooks, the oldest first."""
    with transaction(parts.store) as c:
        found = webhooks.of_tenant(c, caller.tenant, everyones=caller.key_id is None)
    return WebhookList(webhooks=[WebhookBody.of(one) for one in found])


@router.get(
    "/v1/webhooks/{webhook_id}",
    summary="Read a webhook",
    responses=problems(NoSuchWebhook, PartDown),
)
def read_webhook(webhook: GivenWebhook) -> WebhookBody:
    """A webhook, and whether what it is told comes through."""
    return WebhookBody.of(webhook)


@router.delete(
    "/v1/webhooks/{webhook_id}",
    status_code=204,
    summary="Delete a webhook",
    responses=problems(NoSuchWebhook, PartDown),
)
def delete_webhook(parts: GivenParts, webhook: GivenWebhook) -> Response:
    """Tell it nothing any more, and erase its log."""
    while True:
        with transaction(parts.store) as c:
            if webhooks.drop_page(c, webhook.id):
                return Response(status_code=204)


@router.post(
    "/v1/webhooks/{webhook_id}/secret",
    summary="Change a webhook's secret",
    responses=problems(NoSuchWebhook, PartDown),
)
def change_webhook_secret(parts: GivenParts, webhook: GivenWebhook) -> NewWebhook:
    """A new secret, shown this once. For a day the old one signs too, beside it."""
    secret = new_secret()
    with transaction(parts.store) as c:
        webhooks.change_secret(c, webhook.id, secret)
    return NewWebhook.with_secret(webhook, secret)


@router.post(
    "/v1/webhooks/{webhook_id}/resume",
    summary="Resume a webhook",
    responses=problems(NoSuchWebhook, PartDown),
)
def resume_webhook(parts: GivenParts, webhook: GivenWebhook) -> Resumed:
    """Send again, at once what did not come through in the last seven days."""
    with transaction(parts.store) as c:
        due = webhooks.resume(c, webhook.id)
        found = _existing(webhooks.webhook(c, webhook.id))
    _hint(parts, webhook.id)
    return Resumed.with_due(found, due)


@router.post(
    "/v1/webhooks/{webhook_id}/test",
    status_code=202,
    summary="Try a webhook",
    responses=problems(NoSuchWebhook, PartDown),
)
def try_webhook(parts: GivenParts, webhook: GivenWebhook) -> DeliveryBody:
    """Send a `ping`, once, also to one that is paused. Its delivery tells how that went."""
    with transaction(parts.store) as c:
        ping = outbox.ping(c, webhook.id)
        found = deliveries.delivery(c, webhook.id, ping) if ping else None
    if found is None:  # deleted in this very moment
        raise NoSuchWebhook
    _hint(parts, webhook.id)
    return DeliveryBody.of(found)


@router.get(
    "/v1/webhooks/{webhook_id}/deliveries",
    summary="Read a webhook's log",
    responses=problems(BadRequest, NoSuchWebhook, PartDown),
)
def list_deliveries(
    parts: GivenParts,
    webhook: GivenWebhook,
    status: Annotated[Status | None, Query(description="Only deliveries of this status")] = None,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Deliveries on a page")] = 100,
) -> DeliveryPage:
    """What it was told and is to be told, the newest first, for 30 days."""
    with transaction(parts.store) as c:
        found = deliveries.page(c, webhook.id, status, _cursor(cursor), limit + 1)
    more = found[limit - 1].id if len(found) > limit else None
    shown = [DeliveryBody.of(one) for one in found[:limit]]
    return DeliveryPage(deliveries=shown, next_cursor=more)


@router.get(
    "/v1/webhooks/{webhook_id}/deliveries/{delivery_id}",
    summary="Read a delivery",
    responses=problems(NoSuchWebhook, NoSuchDelivery, PartDown),
)
def read_delivery(
    parts: GivenParts, webhook: GivenWebhook, delivery_id: GivenDeliveryId
) -> DeliveryBody:
    """One thing it is told, and how that goes."""
    with transaction(parts.store) as c:
        return DeliveryBody.of(_existing_delivery(deliveries.delivery(c, webhook.id, delivery_id)))


@router.post(
    "/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/resend",
    status_code=202,
    summary="Send a delivery again",
    responses=problems(NoSuchWebhook, NoSuchDelivery, PartDown),
)
def resend_delivery(
    parts: GivenParts, webhook: GivenWebhook, delivery_id: GivenDeliveryId
) -> DeliveryBody:
    """Send it again under the same id, whatever became of it; paused, when it is resumed."""
    with transaction(parts.store) as c:
        deliveries.send_again(c, webhook.id, delivery_id)
        found = _existing_delivery(deliveries.delivery(c, webhook.id, delivery_id))
    _hint(parts, webhook.id)
    return DeliveryBody.of(found)


def _checked(parts: Parts, text: str) -> str:
    url = checked_url(text)
    address = written_address(urlsplit(url).hostname or "")
    if address is not None and not is_public(address) and not parts.settings.webhook_private:
        # what a name leads to is judged when it is sent: it may change until then
        raise BadRequest("The URL leads to an address that is not public.")
    return url


def _cursor(cursor: str | None) -> str | None:
    try:
        return None if cursor is None else str(UUID(cursor))
    except ValueError:
        raise BadRequest("cursor is not one that a page gave.") from None


def _existing(found: Webhook | None) -> Webhook:
    if found is None:
        raise NoSuchWebhook
    return found


def _existing_delivery(found: Delivery | None) -> Delivery:
    if found is None:
        raise NoSuchDelivery
    return found


def _hint(parts: Parts, webhook_id: str) -> None:
    # a message is a hint: without it, it is found a second later
    with contextlib.suppress(PartDown):
        parts.handover.notify([webhook_id])
