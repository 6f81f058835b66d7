"""Lists of jobs, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipeline.cli.service import Service

PAGE = 1000
"""The most the API gives at once."""


def jobs_of(
    service: Service, *, limit: int | None = None, **asked: Any
) -> tuple[list[dict[str, Any]], str | None]:
    """(jobs the API has for `asked`, at most `limit` of them; where to go on, None at the end)."""
    jobs: list[dict[str, Any]] = []
    cursor = None
    while limit is None or len(jobs) < limit:
        size = PAGE if limit is None else min(PAGE, limit - len(jobs))
        page = service.get("/v1/jobs", cursor=cursor, limit=size, **asked)
        jobs += page["jobs"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    return jobs, cursor


def pages_after(service: Service, after: str | None, **asked: Any) -> Iterator[dict[str, Any]]:
    """Every job the API has for `asked` whose id comes after `after`, as its pages come."""
    while True:
        page = service.get("/v1/jobs", cursor=after, limit=PAGE, **asked)
        yield from page["jobs"]
        after = page["next_cursor"]
        if after is None:
            return
