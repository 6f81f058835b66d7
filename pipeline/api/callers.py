"""Who asks, and who read, heard or erased what."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, BaseModel, Field

from pipeline.api.described import problems
from pipeline.api.given import GivenCaller, GivenParts, needs
from pipeline.api.rate import rate_of
from pipeline.caller import Scope
from pipeline.errors import BadRequest, PartDown
from pipeline.store import accesses
from pipeline.store.accesses import Access, Action
from pipeline.store.session import transaction

router = APIRouter(tags=["access"])


class Me(BaseModel):
    """Who asks, as the service knows them."""

    key_id: str | None = Field(
        description="Id of the API key; null: keys are off", examples=["5f0c1a9be2d4"]
    )
    tenant: str | None = Field(description="Whose jobs it makes and sees", examples=["acme"])
    scopes: list[Scope] = Field(description="What it allows", examples=[["read", "submit"]])
    rate_per_s: float = Field(description="Requests a second; 0: no limit", examples=[100.0])
    rate_burst: int = Field(description="Requests at once", examples=[500])


class AccessView(BaseModel):
    """One time somebody read, heard or erased something, or a key was made or ended."""

    at: datetime = Field(description="When")
    action: str = Field(
        description=f"What was done: {', '.join(Action)}", examples=[Action.READ.value]
    )
    job_id: UUID | None = Field(description="To which job; null: to a key")
    key_id: str | None = Field(
        description="By which API key; null: keys were off, or this machine's command line",
        examples=["5f0c1a9be2d4"],
    )
    tenant: str | None = Field(description="Whose key", examples=["acme"])
    detail: str | None = Field(
        description="Format of the transcript, or id of the key", examples=["srt"]
    )

    @classmethod
    def of(cls, found: Access) -> AccessView:
        """As it is answered."""
        same = {name: getattr(found, name) for name in cls.model_fields}
        return cls.model_validate(same)


class AccessPage(BaseModel):
    """Accesses, the newest first."""

    accesses: list[AccessView]
    next_cursor: str | None = Field(
        description="For the next page; null: this is the last", examples=[None]
    )


@router.get("/v1/me", summary="Read who I am", responses=problems(PartDown))
def read_me(caller: GivenCaller, parts: GivenParts) -> Me:
    """What the service knows of the key that asks. Where keys are off everybody may do all."""
    rate = rate_of(caller, parts.settings)
    return Me(
        key_id=caller.key_id,
        tenant=caller.tenant,
        scopes=sorted(caller.scopes),
        rate_per_s=rate.per_s,
        rate_burst=rate.burst,
    )


@router.get(
    "/v1/accesses",
    summary="Read who had what",
    dependencies=needs(Scope.OPERATE),
    responses=problems(BadRequest, PartDown),
)
def list_accesses(
    parts: GivenParts,
    job: Annotated[UUID | None, Query(description="Only to this job")] = None,
    key: Annotated[
        str | None, Query(max_length=64, description="Only by this API key, or about it")
    ] = None,
    since: Annotated[AwareDatetime | None, Query(description="Only at this time or later")] = None,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Accesses on a page")] = 100,
) -> AccessPage:
    """Who read, heard or erased what, of all tenants, the newest first; never what was said."""
    if key is not None and "\0" in key:
        return AccessPage(accesses=[], next_cursor=None)
    with transaction(parts.store) as c:
        found = accesses.found(
            c,
            job_id=str(job) if job else None,
            key_id=key,
            since=since,
            after=_cursor(cursor),
            limit=limit + 1,
        )
    more = str(found[limit - 1].id) if len(found) > limit else None
    return AccessPage(accesses=[AccessView.of(one) for one in found[:limit]], next_cursor=more)


def _cursor(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 18):
        raise BadRequest("cursor is not one that a page gave.")
    return int(cursor)
