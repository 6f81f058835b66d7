"""What is said and answered about webhooks: see bodies.py."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pipeline.api.bodies import JOB_ID
from pipeline.fetch.urls import shown_url
from pipeline.store.deliveries import Delivery, Status
from pipeline.store.webhooks import Webhook
from pipeline.webhooks import EVENTS, Event

WEBHOOK_ID = "0195cf5e-0a53-7cc1-b5a5-6f2ed8e8d6f2"
DELIVERY_ID = "5f0a1c1e-6a4f-4c26-9a83-1f3c2f6f1d10"


class WebhookRequest(BaseModel):
    """Where jobs that end are to be told of."""

    model_config = ConfigDict(extra="forbid")

    url: str = Field(
        description="http or https; a name and password in it are sent as Basic authorization",
        examples=["https://crm.example.com/hooks/fairscribe"],
        min_length=1,
        max_length=2000,
    )
    events: list[Event] = Field(
        default=list(EVENTS), description="Which to tell of", min_length=1, max_length=10
    )


class WebhookBody(BaseModel):
    """A webhook and whether it works."""

    id: str = Field(examples=[WEBHOOK_ID])
    url: str = Field(
        description="Without the name and password in it",
        examples=["https://crm.example.com/hooks/fairscribe"],
    )
    events: list[Event] = Field(examples=[["job.completed", "job.failed"]])
    created_at: datetime
    failing_since: datetime | None = Field(
        description="No delivery has come through since; null while they do"
    )
    paused_at: datetime | None = Field(description="Nothing is sent since; null: it is active")
    paused_reason: str | None = Field(examples=["No delivery came through for 3 days."])
    waiting: int = Field(description="Deliveries to be sent, or sent again", examples=[0])

    @classmethod
    def of(cls, one: Webhook) -> WebhookBody:
        """The answer for what the store says."""
        return cls(**_shown(one))


class NewWebhook(WebhookBody):
    """A webhook just made, with its secret: it is shown this once."""

    secret: str = Field(
        description="Signs what is sent", examples=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]
    )

    @classmethod
    def with_secret(cls, one: Webhook, secret: str) -> NewWebhook:
        """The answer that shows the secret."""
        return cls(**_shown(one), secret=secret)


class WebhookList(BaseModel):
    """Webhooks, the oldest first."""

    webhooks: list[WebhookBody]


class DeliveryBody(BaseModel):
    """One thing a webhook is told, and how that goes."""

    id: str = Field(description="`webhook-id` of each attempt", examples=[DELIVERY_ID])
    event: Literal["job.completed", "job.failed", "job.cancelled", "ping"] = Field(
        examples=["job.completed"]
    )
    job_id: str | None = Field(description="null for a ping", examples=[JOB_ID])
    status: Status = Field(examples=["delivered"])
    attempts: int = Field(description="Begun so far", examples=[1])
    created_at: datetime = Field(description="When the job ended")
    attempted_at: datetime | None = Field(description="When the last attempt began")
    due_at: datetime | None = Field(
        description="When the next attempt may begin; null when there is none"
    )
    delivered_at: datetime | None
    given_up_at: datetime | None
    last_status: int | None = Field(
        description="HTTP status of the last answer; null: none came", examples=[204]
    )
    last_error: str | None = Field(description="Why the last attempt failed")

    @classmethod
    def of(cls, one: Delivery) -> DeliveryBody:
        """The answer for what the store says."""
        return cls(**{name: getattr(one, name) for name in cls.model_fields})


class DeliveryPage(BaseModel):
    """Deliveries, the newest first."""

    deliveries: list[DeliveryBody]
    next_cursor: str | None = Field(
        description="Ask with it for the next page; null on the last", examples=[None]
    )


class Resumed(WebhookBody):
    """A webhook that is active again."""

    due: int = Field(description="Deliveries that are sent again now", examples=[12])

    @classmethod
    def with_due(cls, one: Webhook, due: int) -> Resumed:
        """The answer that says what is sent again."""
        return cls(**_shown(one), due=due)


def _shown(one: Webhook) -> dict[str, Any]:
    fields = {name: getattr(one, name) for name in WebhookBody.model_fields}
    return {**fields, "url": shown_url(one.url)}
