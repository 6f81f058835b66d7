"""What endpoints are given: the parts of this process, and the id of a job that can exist."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Depends, Path, Request

from pipeline.errors import NoSuchJob
from pipeline.parts import Parts


def _parts(request: Request) -> Parts:
    parts: Parts = request.app.state.parts
    return parts


def _job_id(job_id: Annotated[str, Path(description="The id `POST /v1/jobs` gave")]) -> str:
    """The id in canonical spelling; raises `NoSuchJob` for what cannot be one."""
    try:
        return str(UUID(job_id))
    except ValueError:
        raise NoSuchJob from None


GivenParts = Annotated[Parts, Depends(_parts)]
GivenJobId = Annotated[str, Depends(_job_id)]
