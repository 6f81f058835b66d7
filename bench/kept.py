"""What was heard by hand, kept in a file: it changes with none of our code, and takes long to hear.

An answer is found again only for the same samples, model, number format, language and release of
faster-whisper, all of which are in its key.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.ours import Answer
from pipeline.engine import FirstToken
from pipeline.errors import BadRequest
from pipeline.recording import Segment


def key_of(sides: Iterable[NDArray[np.float32]], facts: Sequence[str | None]) -> str:
    """Names what is heard, and by what."""
    digest = hashlib.sha256(json.dumps(facts).encode())
    for samples in sides:
        digest.update(hashlib.sha256(samples.tobytes()).digest())
    return digest.hexdigest()[:32]


class Kept:
    """Answers by key, in `file`; None: nothing is kept.

    Raises `BadRequest` for a file that is there and is not one of these.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._answers: dict[str, Any] = {}
        if file is not None and file.exists():
            try:
                self._answers = dict(json.loads(file.read_text("utf-8")))
            except (OSError, ValueError, TypeError):
                raise BadRequest(f"{file} does not hold answers by hand.") from None

    def get(self, key: str) -> Answer | None:
        """The answer of an earlier run."""
        raw = self._answers.get(key)
        if raw is None:
            return None
        return Answer(
            **raw
            | {
                "segments": tuple(Segment(**one) for one in raw["segments"]),
                "languages": tuple(FirstToken(**one) for one in raw["languages"]),
                "labels": tuple(raw["labels"]),
                "cuts_s": tuple(raw["cuts_s"]),
            }
        )

    def put(self, key: str, answer: Answer) -> None:
        """Keep it; the file is there whole at any moment."""
        self._answers[key] = asdict(answer)
        if self._file is not None:
            fresh = self._file.with_name(self._file.name + ".part")
            fresh.write_text(json.dumps(self._answers), "utf-8")
            os.replace(fresh, self._file)
