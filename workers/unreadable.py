"""Jobs whose own sound cannot be read, though storage answers: a bad sector, one object refused.

Nobody else waits for such a job. It is tried again with growing pauses and, after a while, let go:
it fails when others could be read meanwhile, else it is given back. With many of them, and nobody
heard since, storage may be to blame after all: then others are claimed only now and then.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

from workers.held import Held

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
"""Pauses double from the first to the longest."""

LIMIT_S = 300.0
"""A job that could not be read for this long is not kept."""

AT_MOST = 4
"""More of them than this, and nobody heard since, are many."""

DONE_KEPT = 64
"""Units that ended of which is remembered whose they were and when."""


class Done:
    """Whose units ended well of late."""

    def __init__(self) -> None:
        self._done: deque[tuple[str, float]] = deque(maxlen=DONE_KEPT)

    def add(self, job_id: str) -> None:
        """A unit of this job ended well now."""
        self._done.append((job_id, time.monotonic()))

    def since(self, since_s: float, other_than: str | None = None) -> bool:
        """Whether one ended after `since_s` (monotonic) of another job than this."""
        return any(at_s > since_s and job_id != other_than for job_id, at_s in self._done)


class Unreadable:
    """The rules for them. Everything runs on one event loop."""

    def __init__(self, done: Done) -> None:
        self._done = done

    def note(self, held: Held) -> None:
        """A read of the job failed, which its units wait out."""
        now_s = time.monotonic()
        if held.unreadable_since_s is None:
            held.unreadable_since_s = now_s
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(held.unreadable_times, 10))
        held.unreadable_times += 1
        held.not_before_s = now_s + pause_s

    def many(self, jobs: Iterable[Held]) -> bool:
        """Whether others may fare no better."""
        since = [h.unreadable_since_s for h in jobs if h.unreadable_since_s is not None]
        return len(since) > AT_MOST and not self._done.since(min(since))

    def overdue(self, jobs: Iterable[Held]) -> list[tuple[Held, bool]]:
        """Which to let go, each with whether units of others ended well meanwhile."""
        oldest_s = time.monotonic() - LIMIT_S
        return [
            (held, self._done.since(held.unreadable_since_s, held.job_id))
            for held in jobs
            if held.unreadable_since_s is not None
            and held.unreadable_since_s <= oldest_s
            and not (held.running or held.ended)
        ]
