"""The same thing done to many, several at once, its results as they come."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(work: Callable[[T], R], many: Iterable[T], at_once: int) -> Iterator[R]:
    """Yield `work(one)` for each, in the order they are done; raises what a `work` raises.

    When the caller stops listening (an error, Ctrl-C) nothing further is begun. What is under way
    is left to itself, on threads that keep no program from ending: a large upload takes longer
    than anybody who pressed Ctrl-C waits.
    """
    waiting: queue.SimpleQueue[T | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[R | None, BaseException | None]] = queue.SimpleQueue()
    stopped = threading.Event()

    def run() -> None:
        while (one := waiting.get()) is not None and not stopped.is_set():
            try:
                done.put((work(one), None))
            except BaseException as error:
                done.put((None, error))

    left = iter(many)
    try:
        under_way = 0
        for one in itertools.islice(left, at_once):
            waiting.put(one)
            threading.Thread(target=run, daemon=True).start()
            under_way += 1
        while under_way:
            result, error = done.get()
            if error is not None:
                raise error
            under_way -= 1
            for one in itertools.islice(left, 1):
                waiting.put(one)
                under_way += 1
            yield result  # type: ignore[misc]  # None only where R is
    finally:
        stopped.set()
        for _ in range(at_once):
            waiting.put(None)
