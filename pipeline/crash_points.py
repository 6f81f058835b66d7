"""Named places where a process can be told to die, so that tests know what each crash leaves.

FAIRSCRIBE_CRASH_AT=after_grant makes the process that reaches that point first end there, as by
kill -9: nothing is flushed, nothing is given back. For tests and `make chaos` only.
"""

from __future__ import annotations

import os

VARIABLE = "FAIRSCRIBE_CRASH_AT"

EXIT_CODE = 9
"""How a process ends that was told to."""

POINTS: frozenset[str] = frozenset({"delivery_taken", "delivery_sent"})
"""Every point, in the order a recording meets them."""

_told = os.environ.get(VARIABLE)


def reach(point: str) -> None:
    """End this process if it was told to die at `point`, one of `POINTS`."""
    if _told == point:
        os._exit(EXIT_CODE)
