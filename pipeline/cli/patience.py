"""Asks again while the service is away: it may be restarted in the middle of long work."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from pipeline.cli.service import Full, Later, NotFairscribe
from pipeline.errors import PartDown

R = TypeVar("R")

PATIENCE_S = 60.0
"""How long the service may refuse or be gone before what is missing is given up."""

PAUSE_S = 1.0
"""Before it is asked again, where it does not say."""


def pause_s(down: PartDown) -> float:
    """When to ask again, in seconds from now."""
    return down.after_s if isinstance(down, Later) else PAUSE_S


def patiently(ask: Callable[[], R]) -> R:
    """The answer of `ask`, which changes nothing by being asked again.

    Raises what it raises, `PartDown` only after PATIENCE_S.
    """
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except NotFairscribe:
            raise
        except Full as full:  # it is there: no patience is lost by that
            time.sleep(pause_s(full))
            until_s = time.monotonic() + PATIENCE_S
        except PartDown as down:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise
            time.sleep(min(pause_s(down), left_s))
