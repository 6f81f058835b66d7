"""Tells whoever started this process that it can work now."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "FAIRSCRIBE_READY_FILE"


def say_ready() -> None:
    """Create the file named by the environment, if one is named."""
    if path := os.environ.get(VARIABLE):
        Path(path).touch()
