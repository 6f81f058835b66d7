"""Lines that stand still: jobs that wait, and workers of whom only the speed is known."""

from __future__ import annotations

import pytest

from pipeline.job import SURVEY, TRANSCRIBE
from pipeline.parts import Parts
from pipeline.scheduling.policies import parse_policy
from pipeline.scheduling.work import bucket_work_s
from tests import driven

UNIT_S = bucket_work_s(50)
"""Work of a job in bucket 50, one window: 1.17."""


@pytest.fixture
def parts(parts: Parts) -> Parts:
    """Parts that look anew for every forecast."""
    parts.outlooks.kept_s = 0.0
    return parts


def report(parts: Parts, transcribe: float | None = None, survey: float | None = None) -> None:
    """Let workers of 2 slots each be this fast."""
    for stage, speed in ((TRANSCRIBE, transcribe), (SURVEY, survey)):
        parts.queues[stage.name].board.report_speed(f"{stage.name}@here", speed, 2)


def set_policy(parts: Parts, policy: str) -> None:
    for queue in parts.queues.values():
        queue.set_policy(parse_policy(policy))


def waiting(parts: Parts, count: int, batch: str | None = None) -> list[str]:
    """Jobs of one window that wait for an engine."""
    ids = [driven.received(parts, batch_id=batch) for _ in range(count)]
    for job_id in ids:
        driven.surveyed(parts, job_id)
    return ids
