"""Imported by a part before it starts: its echo engine dies of one window, as vLLM did of some.

Which one tells TEST_DEADLY: the SHA-256 of its samples.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

from pipeline.engine import Heard, Prepared
from workers.echo_engine import EchoEngine

_transcribe = EchoEngine.transcribe


async def transcribe(self: EchoEngine, window: Prepared, **how: Any) -> Heard:
    if hashlib.sha256(window.pcm).hexdigest() == os.environ["TEST_DEADLY"]:
        self.kill()
    return await _transcribe(self, window, **how)


EchoEngine.transcribe = transcribe  # type: ignore[method-assign, assignment]
