"""What the house's engine hears in windows, kept on disk so that rules are tried without it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.engine import Heard
from pipeline.steps.hear import hear
from pipeline.weights import find_model
from workers.vllm_engine import VllmEngine


def hear_all(
    windows: Sequence[tuple[bytes, float]], *, model: str, home: Path, kept: Path, slots: int = 8
) -> list[Heard]:
    """What the engine makes of each window (its samples s16le at 16 kHz, seconds of speech in it).

    What was heard before is read from the folder `kept`; the engine starts only for the rest.
    """
    kept.mkdir(parents=True, exist_ok=True)
    files = [kept / f"{model}-{hashlib.sha256(pcm).hexdigest()[:24]}.json" for pcm, _ in windows]
    missing = [n for n, file in enumerate(files) if not file.exists()]
    if missing:
        asyncio.run(_hear(windows, files, missing, find_model(model, home), slots))
    return [Heard.from_json(json.loads(file.read_text())) for file in files]


async def _hear(
    windows: Sequence[tuple[bytes, float]],
    files: Sequence[Path],
    missing: Sequence[int],
    model: str,
    slots: int,
) -> None:
    engine = VllmEngine(model, slots=slots, kv_cache_gib=0.5)
    await engine.start()
    free = asyncio.Semaphore(slots)

    async def one(number: int) -> None:
        pcm, speech_s = windows[number]
        async with free:
            heard = await hear(engine, await engine.prepare(pcm, language="en"), speech_s)
        files[number].write_text(json.dumps(heard.to_json()))

    try:
        await asyncio.gather(*map(one, missing))
    finally:
        await engine.stop()


def quietly(log: Path) -> None:
    """Send what vLLM prints to a file; our own words still go to the standard output."""
    told = os.dup(sys.stdout.fileno())
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout = os.fdopen(told, "w")
