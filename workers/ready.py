"""Tells whoever started this process that it can work, and goes on telling it.

A file, named by FAIRSCRIBE_READY_FILE: it appears when the part can work, and its time of change
says when the part was last seen at work. `workers.alive` reads it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

VARIABLE = "FAIRSCRIBE_READY_FILE"


def say_ready() -> None:
    """Create the file named by the environment, if one is named."""
    if path := os.environ.get(VARIABLE):
        Path(path).touch()


def still_ready() -> None:
    """Renew the file; before `say_ready` nothing."""
    if path := os.environ.get(VARIABLE):
        with contextlib.suppress(OSError):
            os.utime(path)
