"""A circuit breaker: a part that does not answer is not asked for the moment.

Closed: everybody asks. After `after` failures in a row, none older than `FORGET_S`, or when nobody
was answered for `STALL_S` while as many wait that long, it is open: who asks learns at once
that there is no answer. Where fewer wait so long a thread asks beside them,
and its failure opens it. While it is open a thread asks once a second on behalf of all, as long as
somebody wants to know; where there is no such thread one caller a second is let through, whether
or not the one before has ended. The first answer closes it. So a dead part costs nobody its
timeout, piles up no threads, and is found within a second or two of its return.

A failure is that nobody answered. An answer that refuses, a broken constraint or a script that was
turned down, is an answer. One breaker a part and process; safe to use from several threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pipeline.errors import PartDown

AFTER = 3
"""Failures in a row that open it."""

FORGET_S = 30.0
"""A failure longer ago than this is not in a row with another."""

PROBE_EVERY_S = 1.0
"""While it is open one call so often is let through."""

STALL_S = 5.0
"""Calls without an answer for this long, and no other answered meanwhile, are failures."""


class NotAsked(PartDown):
    """The part did not answer lately, so it was not asked this time."""


@dataclass(frozen=True)
class Call:
    """A call that was let through; say how it ended by `answered` or `failed`."""

    number: int
    begun_s: float
    life: int
    """How often the breaker had closed by then: a failure of an earlier life counts no more."""


class Breaker:
    """Whether `part` ("Postgres") is asked. `clock` gives seconds that only grow.

    `ask` asks the part and returns, or raises; without it callers do. `stall_s`: `STALL_S`, or
    infinity where a call may last as long as somebody else likes.
    """

    def __init__(
        self,
        part: str,
        ask: Callable[[], object] | None = None,
        *,
        after: int = AFTER,
        stall_s: float = STALL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.part = part
        self._ask = ask
        self._after = after
        self._stall_s = stall_s
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[int, Call] = {}
        self._numbers = 0
        self._life = 0
        self._failures = 0
        self._failed_s = self._answered_s = clock()
        self._open = False
        self._probed_s = self._wanted_s = clock() - PROBE_EVERY_S
        self._watch: threading.Thread | None = None
        self._doubted_s: float | None = None
        """Since when a thread asks whether those who wait are only slow."""

    @property
    def is_open(self) -> bool:
        """Whether callers are turned away; True also when this moment's look finds it so."""
        with self._lock:
            self._look(self._clock())
            return self._open

    def call(self) -> Call:
        """Before the part is asked. Raises `NotAsked` while it is open."""
        with self._lock:
            now_s = self._clock()
            self._look(now_s)
            if self._open:
                self._wanted_s = now_s
                if self._watch is not None or now_s - self._probed_s < PROBE_EVERY_S:
                    raise NotAsked(f"{self.part} does not answer")
                self._probed_s = now_s
            self._numbers += 1
            call = Call(self._numbers, now_s, self._life)
            self._waiting[call.number] = call
            return call

    def answered(self, call: Call) -> None:
        """The part answered, be it by a refusal: it is closed."""
        with self._lock:
            self._waiting.pop(call.number, None)
            self._close()

    def failed(self, call: Call) -> None:
        """The part did not answer."""
        with self._lock:
            now_s = self._clock()
            self._waiting.pop(call.number, None)
            if self._open:
                self._look_after(now_s)
            elif call.life == self._life:
                recent = now_s - self._failed_s <= FORGET_S
                self._failures = self._failures + 1 if recent else 1
                self._failed_s = now_s
                if self._failures >= self._after:
                    self._trip(probed_s=now_s)

    def abandoned(self, call: Call) -> None:
        """The call ended without asking the part, or nobody knows whether it answered."""
        with self._lock:
            self._waiting.pop(call.number, None)

    @contextmanager
    def asking(self, *no_answer: type[BaseException]) -> Iterator[Call]:
        """A call for the length of the block; it failed when one of `no_answer` is raised.

        Any other error says that the part answered. Raises `NotAsked`.
        """
        call = self.call()
        try:
            yield call
        except no_answer:
            self.failed(call)
            raise
        except Exception:
            self.answered(call)
            raise
        except BaseException:
            self.abandoned(call)
            raise
        else:
            self.answered(call)

    def gives_up(self, call: Call) -> bool:
        """Whether a call that still waits should wait no more: it is open, and that for as long as
        an answer may take.
        """
        with self._lock:
            now_s = self._clock()
            self._look(now_s)
            return self._open and now_s - call.begun_s >= self._stall_s

    def _look(self, now_s: float) -> None:
        """Open it when nobody is answered. Looked at when somebody asks: no thread of its own."""
        if self._open or now_s - self._answered_s < self._stall_s:
            return
        hung = [c for c in self._waiting.values() if now_s - c.begun_s >= self._stall_s]
        doubted_s = self._doubted_s
        unsure_s = 0.0 if doubted_s is None else now_s - doubted_s
        if len(hung) >= self._after or (hung and unsure_s >= self._stall_s):
            self._trip(probed_s=now_s - PROBE_EVERY_S)
        elif hung and doubted_s is None and self._ask is not None:
            self._doubted_s = now_s
            name = f"is {self.part} there"
            threading.Thread(target=self._doubt, name=name, daemon=True).start()

    def _doubt(self) -> None:
        """Ask once, for one or two who wait long: it may be them, or nobody is answered."""
        assert self._ask is not None
        begun_s, answers = self._clock(), True
        try:
            self._ask()
        except Exception:  # as in `_keep_asking`
            answers = False
        with self._lock:
            self._doubted_s = None
            if answers:
                self._close()
            elif not self._open and self._answered_s < begun_s:
                self._trip(probed_s=self._clock())

    def _trip(self, probed_s: float) -> None:
        self._open = True
        self._failures = 0
        self._probed_s = probed_s
        self._look_after(self._clock())

    def _close(self) -> None:
        self._answered_s = self._clock()
        self._failures = 0
        if self._open:
            self._open = False
            self._life += 1

    def _look_after(self, now_s: float) -> None:
        """Have it asked in the background, unless it is or nobody can."""
        self._wanted_s = now_s
        if self._ask is not None and self._watch is None:
            name = f"is {self.part} back"
            self._watch = threading.Thread(target=self._keep_asking, name=name, daemon=True)
            self._watch.start()

    def _keep_asking(self) -> None:
        assert self._ask is not None
        while True:
            answers = True
            try:
                self._ask()
            except Exception:  # whatever it says: not an answer
                answers = False
            with self._lock:
                if answers:
                    self._close()
                if not self._open or self._clock() - self._wanted_s > FORGET_S:
                    self._watch = None
                    return
            time.sleep(PROBE_EVERY_S)
