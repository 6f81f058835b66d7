"""What is told of a job, a batch or all: a place in the queue, and two times."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Times:
    """When something will be done, in seconds from now."""

    p50_s: float
    """As likely sooner as later."""
    p90_s: float
    """Nine times in ten it is done by then."""


@dataclass(frozen=True)
class Forecast:
    """What can be said of a job that has not ended."""

    position: int | None
    """In the queue of its stage, from 1; None when it does not wait."""
    times: Times | None
    """None while nobody knows how fast it goes."""


UNKNOWN = Forecast(None, None)
