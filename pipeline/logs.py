"""One JSON line an event, to stderr: what happened, to which job, never what was said in it."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog


def configure(part: str, level: str = "info") -> None:
    """Set up logging of this process from `level` on (debug, info, warning); every line names
    `part`. Safe to call twice.
    """
    shared: list[Any] = [
        lambda _, __, event: {"part": part, **event},  # a contextvar would not reach threads
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        # not the stream of this moment: a test or a daemon may replace sys.stderr later
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )


def log() -> Any:
    """A logger: `log().info("granted", job_id=..., attempt=...)`."""
    return structlog.get_logger()
