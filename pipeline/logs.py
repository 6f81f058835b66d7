"""One JSON line an event, to stderr: what happened, to which job, never what was said in it."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Collection
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


_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class QuietPaths(logging.Filter):
    """Takes out of an access log what callers chose: names of batches and calls, and every query.

    `words` are the steps of paths that we named; ids of ours stay too.

    >>> QuietPaths(["v1", "batches"]).quiet("/v1/batches/Smith,%20J.?metadata.agent=7")
    '/v1/batches/*'
    """

    def __init__(self, words: Collection[str]) -> None:
        super().__init__()
        self._words = {*words, ""}

    def quiet(self, path: str) -> str:
        """The path as it may be written down."""
        steps = path.partition("?")[0].split("/")
        return "/".join(s if s in self._words or _ID.fullmatch(s) else "*" for s in steps)

    def filter(self, record: logging.LogRecord) -> bool:
        """True: the line stays. Its arguments are (who, method, path, version, status)."""
        if isinstance(record.args, tuple) and len(record.args) == 5:
            who, method, path, version, status = record.args
            record.args = (who, method, self.quiet(str(path)), version, status)
        return True
