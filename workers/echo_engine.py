"""A speech engine without a model: it takes as long as hearing would and echoes what it was given.

For tests of load, order and faults, where service times must be known and a death must come at
the right moment. It hears nothing: never a proof of transcription.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from typing import Any

from pipeline.engine import FirstToken, Heard, Prepared, Utterance
from pipeline.errors import EngineDead, EngineFull, EnginePoisoned, WindowRefused
from workers.in_flight import InFlight, window_length_s

TOKENS_PER_SECOND = 5
"""About what English speech decodes to; the work model needs some number."""


class EchoEngine:
    """Fulfils `pipeline.engine.SpeechEngine`; all times run on the event loop's clock.

    A window takes (`fixed_s` + `per_second_s` * its seconds) * (1 + `slowdown` * windows already
    in service). With `slowdown` 0 the slots are independent servers, as queue theory likes them;
    1 makes them share one server.
    """

    name = "echo"

    def __init__(
        self,
        *,
        slots: int = 8,
        fixed_s: float = 0.05,
        per_second_s: float = 0.01,
        slowdown: float = 0.0,
        window_limit_s: float = math.inf,
    ) -> None:
        self.slots = slots
        self._window_limit_s = window_limit_s
        self._fixed_s = fixed_s
        self._per_second_s = per_second_s
        self._slowdown = slowdown
        self._windows: InFlight | None = None
        self._free = asyncio.Semaphore(slots)
        self._serving = 0
        self._refusals = 0
        self._fits: int | None = None
        self._answering: asyncio.Event | None = None

    async def start(self) -> None:
        """Be ready, at once; also after a death. Does nothing while alive."""
        if self.alive():
            return
        if self._fits is not None and self.slots > self._fits:
            raise EngineFull("The engine was told to need more memory than there is.")
        self._windows = InFlight(self._window_limit_s)
        self._free = asyncio.Semaphore(self.slots)
        self._serving = 0
        self._answering = asyncio.Event()
        self._answering.set()

    async def prepare(
        self, pcm: bytes, *, language: str, task: str = "transcribe", vocabulary: str = ""
    ) -> Prepared:
        """See `SpeechEngine`. Takes no time."""
        length_s = window_length_s(pcm)
        if self._windows is None:
            raise EngineDead("The engine was not started.")
        return Prepared(pcm, length_s, language, task, vocabulary)

    async def transcribe(self, window: Prepared, *, temperature: float = 0.0) -> Heard:
        """See `SpeechEngine`. The text tells the window's length and the hash of its samples."""
        pcm, length_s = window.pcm, window.length_s
        if self._windows is None:
            raise EngineDead("The engine was not started.")
        if self._refusals:
            self._refusals -= 1
            raise WindowRefused("The engine was told to refuse this window.")
        busy_s = await self._windows.run(self._serve(self._windows, length_s))
        text = f"echo {length_s:.2f} {hashlib.sha256(pcm).hexdigest()[:8]}"
        return Heard(
            utterances=(Utterance(0.0, length_s, text),),
            language=window.language,
            tokens=max(1, round(TOKENS_PER_SECOND * length_s)),
            mean_logprob=None,
            finish="stop",
            busy_s=busy_s,
            temperature=temperature,
        )

    async def first_token(self, pcm: bytes) -> FirstToken:
        """See `SpeechEngine`. Everybody speaks, and English; no time passes."""
        await self.prepare(pcm, language="en")
        return FirstToken("en", 1.0, 0.0)

    async def _serve(self, windows: InFlight, length_s: float) -> float:
        """Take the time, once a slot is free; returns the window's share of the engine's."""
        async with self._free:
            service_s = self._fixed_s + self._per_second_s * length_s
            self._serving += 1
            try:
                with windows.shares.one_more() as share:
                    await asyncio.sleep(service_s * (1 + self._slowdown * (self._serving - 1)))
                    if self._answering is not None:
                        await self._answering.wait()
                return share.busy_s
            finally:
                self._serving -= 1

    def fewer_slots(self) -> bool:
        """See `SpeechEngine`."""
        before, self.slots = self.slots, max(1, self.slots // 2)
        return self.slots < before

    def alive(self) -> bool:
        """See `SpeechEngine`. A hanging engine is alive."""
        return self._windows is not None and not self._windows.dead

    def provenance(self) -> dict[str, Any]:
        """See `SpeechEngine`."""
        return {"model": "echo", "weights_hash": None, "engine": "echo", "dtype": None}

    async def stop(self) -> None:
        """See `SpeechEngine`. Windows in flight end with `EngineDead`."""
        if self._windows is not None:
            self._windows.die("The engine was stopped.")

    def kill(self) -> None:
        """Die like a crashed process: windows in flight end with `EngineDead`."""
        if self._windows is not None:
            self._windows.die("The engine was killed.")

    def poison(self) -> None:
        """Be found poisoned by a window in flight."""
        if self._windows is not None:
            self._windows.die("The engine was poisoned.", EnginePoisoned)

    def fill(self, fits: int) -> None:
        """Run out of memory now, and at each start with more than `fits` slots."""
        self._fits = fits
        if self._windows is not None:
            self._windows.die("The engine was told that its memory is full.", EngineFull)

    def refuse(self, windows: int = 1) -> None:
        """Refuse the next `windows` windows with `WindowRefused`."""
        self._refusals = windows

    def hang(self) -> None:
        """Answer no window until `resume` or death, like an engine stuck in its driver."""
        if self._answering is not None:
            self._answering.clear()

    def resume(self) -> None:
        """Answer again, first those that hung."""
        if self._answering is not None:
            self._answering.set()
