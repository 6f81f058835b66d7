"""What an engine's process said before it died, so that the worker knows of what.

vLLM tells its parent that EngineCore is dead and leaves the reason to a log in which nobody looks.
Here EngineCore writes the error it logs last to a file the worker named in its environment. In
vLLM 0.32 that is `logger.exception` in `EngineCoreProc.run_engine_core` ("EngineCore failed to
start.", "EngineCore encountered a fatal error."), before the parent is told. A process that is
killed leaves no word.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from pathlib import Path

VARIABLE = "_FAIRSCRIBE_ENGINE_LAST_WORDS"
"""Environment: the file. Inherited by the processes of the engine."""

LOGGER = "vllm.v1.engine.core"
DEATH = "EngineCore"
"""In the text of the two records that tell of a death; errors of one request are logged without."""
KEPT = 400
"""Characters of an error that are kept."""

FULL = (
    "out of memory",  # torch.OutOfMemoryError, torch.AcceleratorError, vLLM's sampler warm-up
    "OutOfMemoryError",
    "can't allocate memory",  # torch's allocator on a CPU, a RuntimeError
    "MemoryError",
    "No available memory for the cache blocks",  # ValueError of v1/core/kv_cache_utils.py
    "larger than the available KV cache memory",  # likewise
)
"""Parts of what vLLM 0.32 and torch 2.13 say when memory is full and fewer windows at once may do.
"Free memory on device ... is less than desired GPU memory utilization" is none of it: that is for
an operator, who has set the utilization, or for who else is on the GPU.
"""


def is_full(words: str) -> bool:
    """Whether an engine that left these words died for want of memory."""
    return any(part in words for part in FULL)


class LastWords:
    """The worker's side: names the file, and reads it after a death."""

    def __init__(self) -> None:
        self._path: Path | None = None

    def ask(self) -> None:
        """Let engines started from now on leave their last words here."""
        if self._path is None:
            folder = tempfile.gettempdir()
            self._path = Path(folder) / f"fairscribe-engine-{os.getpid()}-{id(self):x}.words"
        os.environ[VARIABLE] = str(self._path)

    def take(self) -> str:
        """What was said last, and nothing the next time; empty when nothing was."""
        if self._path is None:
            return ""
        try:
            return self._path.read_text(errors="replace").strip()
        except OSError:
            return ""
        finally:
            with contextlib.suppress(OSError):
                self._path.unlink()


class _Writer(logging.Handler):
    """Writes the type and the message of each error that is logged, one over the other."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.ERROR)
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is None or DEATH not in record.getMessage():
            return
        said = " ".join(f"{type(error).__name__}: {error}".split())
        with contextlib.suppress(OSError):
            # a name of its own each time: a folder for everybody may hold a link of that name
            self._path.unlink(missing_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(said[:KEPT])


def listen() -> None:
    """In the engine's process: write from now on what it dies of, where somebody asked for it."""
    logger = logging.getLogger(LOGGER)
    known = any(isinstance(handler, _Writer) for handler in logger.handlers)
    if (path := os.environ.get(VARIABLE)) and not known:
        logger.addHandler(_Writer(Path(path)))
