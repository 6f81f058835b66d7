"""How much audio waits here, and whether more is taken in.

Once a second at most a process asks Postgres for the sum; what it takes in itself meanwhile it
adds. So an upload costs no question, and several processes together may go beyond the cap by what
they take in within that second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sqlalchemy import Engine

from pipeline.api.submitted import Submitted
from pipeline.errors import BacklogFull, PartDown
from pipeline.parts import Parts
from pipeline.store.load import BYTES_A_S, FETCHED_S, audio_left_s
from pipeline.store.session import transaction

KEPT_S = 1.0
"""How long a sum is used."""

ASKING_SHARE = 0.05
"""Part of the time the sum may take: of a hundred thousand jobs it takes some 50 ms."""

SOONEST_S, LATEST_S = 1.0, 300.0
"""Bounds of what is told as Retry-After: a line may empty sooner than anybody expects."""

UNKNOWN_S = 30.0
"""Told where nobody can say how fast the line moves."""


class Backlog:
    """The audio that waits or is in work. Safe to use from several threads.

    `most_h` hours are taken in, 0: any number. `empties_s` tells in how many seconds all that waits
    will be done, None when nobody can say.
    """

    def __init__(self, store: Engine, most_h: float, empties_s: Callable[[], float | None]) -> None:
        self._store, self._most_s, self._empties_s = store, most_h * 3600, empties_s
        self._lock = threading.Lock()
        self._sum_s = 0.0
        self._good_until_s = 0.0

    def take_in(self, coming_s: float) -> None:
        """Count audio that comes. Blocks; call it in a thread.

        Raises `BacklogFull` when that is more than may wait; where nothing waits all is taken.
        Raises `PartDown`.
        """
        if not self._most_s:
            return
        with self._lock:
            waits_s = self._left_s()
            if not waits_s or waits_s + coming_s <= self._most_s:
                self._sum_s += coming_s
                return
        self._refuse(waits_s, waits_s + coming_s - self._most_s)

    def check(self) -> None:
        """Raise `BacklogFull` when nothing more is taken in. Blocks. Raises `PartDown`."""
        if not self._most_s:
            return
        with self._lock:
            waits_s = self._left_s()
        if waits_s >= self._most_s:
            self._refuse(waits_s, waits_s - self._most_s)

    def _left_s(self) -> float:
        began_s = time.monotonic()
        if began_s >= self._good_until_s:
            with transaction(self._store) as c:
                self._sum_s = audio_left_s(c)
            ended_s = time.monotonic()
            self._good_until_s = ended_s + max(KEPT_S, (ended_s - began_s) / ASKING_SHARE)
        return self._sum_s

    def _refuse(self, waits_s: float, too_much_s: float) -> None:
        all_s = self._empties_s()
        # the line moves evenly: so much of it has to go first
        after_s = UNKNOWN_S if all_s is None else all_s * min(1.0, too_much_s / waits_s)
        after_s = min(max(after_s, SOONEST_S), LATEST_S)
        raise BacklogFull(
            after_s,
            f"{waits_s / 3600:.1f} h of audio wait here, and {self._most_s / 3600:g} h may; send "
            "it again later, or in smaller parts.",
        )


def backlog_of(parts: Parts) -> Backlog:
    """The backlog the parts know of."""

    def empties_s() -> float | None:
        try:
            times = parts.outlooks.now().all_done()
        except PartDown:
            return None
        return times.p50_s if times else None

    return Backlog(parts.store, parts.settings.max_backlog_h, empties_s)


def audio_s(submitted: Submitted, longest_s: float) -> float:
    """How long its recordings last, as far as can be known unheard; none more than `longest_s`."""
    hint_s = submitted.said.get("duration_hint_s")
    files_s = (hint_s or guessed_s(file.size_bytes, longest_s) for file in submitted.files)
    return sum(files_s) + len(submitted.urls) * (hint_s or FETCHED_S)


def guessed_s(size_bytes: int, longest_s: float) -> float:
    """How long a recording of this size is taken to last before anybody looks."""
    return min(size_bytes / BYTES_A_S, longest_s)
