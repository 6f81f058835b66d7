"""Erase what is known of one person, or of one batch: all jobs whose metadata says so.

What they are chosen by is personal itself: it is kept nowhere and written to no log.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from pipeline.api.described import problems
from pipeline.api.given import GivenParts, GivenSubmitter
from pipeline.api.said import keepable
from pipeline.errors import BadRequest, PartDown
from pipeline.steps.erase import count_where, erase_where
from pipeline.store.erasures import Wanted, Whose

router = APIRouter(tags=["jobs"])

FIELDS = 10
"""Metadata fields one erasure may name."""

LIMIT = 1_000
"""Longest name or value, characters."""


class Erasure(BaseModel):
    """Which jobs to erase: those that fulfil all of it."""

    model_config = ConfigDict(extra="forbid")

    metadata: dict[str, Any] | None = Field(
        None,
        description="Fields of their metadata, each with a text or number: equal to it, or a list "
        'that holds it; 42 and "42" are the same',
        examples=[{"customer_id": "42"}],
    )
    batch_id: str | None = Field(None, description="Their batch", examples=[None])
    dry_run: bool = Field(False, description="Count them only")


class Erased(BaseModel):
    """How far an erasure is."""

    erased: int = Field(description="Jobs this request erased", examples=[3])
    more: bool = Field(
        description="Some may be left, as with `dry_run`: ask again until it is false",
        examples=[False],
    )
    found: int | None = Field(description="With `dry_run`: how many there are", examples=[None])


@router.post(
    "/v1/erasures",
    summary="Erase the jobs of one person",
    responses=problems(BadRequest, PartDown),
)
def erase_all(parts: GivenParts, caller: GivenSubmitter, asked: Erasure) -> Erased:
    """Erase the caller's jobs whose metadata holds all of these fields, or a batch, as `DELETE`
    erases one. Up to 1,000 in a request; jobs that come meanwhile are not among them.
    """
    whose = Whose(caller, _fields(asked.metadata), _batch(asked.batch_id))
    if not whose.metadata and whose.batch_id is None:
        raise BadRequest("Say whose jobs: a field of their metadata at least, or a batch_id.")
    if asked.dry_run:
        found = count_where(parts.store, whose)
        return Erased(erased=0, more=found > 0, found=found)
    erased, more = erase_where(parts.store, parts.storage, parts.queues, whose)
    return Erased(erased=erased, more=more, found=None)


def _batch(batch_id: str | None) -> str | None:
    if batch_id is not None and (not batch_id or not keepable(batch_id)):
        raise BadRequest("batch_id is not one that can exist.")
    return batch_id


def _fields(given: dict[str, Any] | None) -> dict[str, Wanted]:
    """The fields, checked. Raises `BadRequest` for what would fit jobs of many people."""
    if given is None:
        return {}
    if not 1 <= len(given) <= FIELDS:
        raise BadRequest(f"metadata names 1 to {FIELDS} fields.")
    for name, value in given.items():
        if not 1 <= len(name) <= LIMIT or not keepable(name):
            raise BadRequest(f"A field of metadata has a name of 1 to {LIMIT} characters.")
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise BadRequest("A field of metadata is a text or a number: all else fits too many.")
        if isinstance(value, str) and not (
            value.strip() and len(value) <= LIMIT and keepable(value)
        ):
            raise BadRequest(f"A text in metadata has 1 to {LIMIT} characters, not only blanks.")
        if isinstance(value, float) and value - value != 0:
            raise BadRequest("A number in metadata is finite.")
        if isinstance(value, int) and len(str(abs(value))) > 100:
            raise BadRequest("A number in metadata has at most 100 digits.")
    return dict(given)
