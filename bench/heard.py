"""What the house's engine hears in windows, kept on disk so that rules are tried without it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from pipeline.engine import Heard
from pipeline.recording import Plan
from pipeline.steps.hear import hear_out
from pipeline.weights import find_model
from workers.vllm_engine import VllmEngine


@dataclass(frozen=True)
class Ready:
    """A recording's plan with the samples of each of its windows, s16le at 16 kHz."""

    plan: Plan
    windows: tuple[bytes, ...]


def hear_all(
    recordings: Sequence[Ready], *, model: str, home: Path, kept: Path, slots: int = 8
) -> list[dict[int, Heard]]:
    """What the engine makes of each recording's windows, by their index.

    What was heard before is read from the folder `kept`; the engine starts only for the rest.
    """
    kept.mkdir(parents=True, exist_ok=True)
    files = {
        (n, index): kept / f"{model}-{hashlib.sha256(pcm).hexdigest()[:24]}.json"
        for n, ready in enumerate(recordings)
        for index, pcm in enumerate(ready.windows)
    }
    missing = {file: place for place, file in files.items() if not file.exists()}
    if missing:
        asyncio.run(_hear(recordings, missing, find_model(model, home), slots))
    heard: list[dict[int, Heard]] = [{} for _ in recordings]
    for (n, index), file in files.items():
        heard[n][index] = Heard.from_json(json.loads(file.read_text()))
    return heard


async def _hear(
    recordings: Sequence[Ready], missing: Mapping[Path, tuple[int, int]], model: str, slots: int
) -> None:
    engine = VllmEngine(model, slots=slots, kv_cache_gib=0.5)
    await engine.start()
    free = asyncio.Semaphore(slots)

    async def one(file: Path, number: int, index: int) -> None:
        ready = recordings[number]
        window = ready.plan.windows[index]
        async with free:
            prepared = await engine.prepare(ready.windows[index], language="en")
            heard = await hear_out(engine, prepared, window, ready.plan.shared_s(window))
        await asyncio.to_thread(file.write_text, json.dumps(heard.to_json()))

    try:
        await asyncio.gather(*(one(file, *place) for file, place in missing.items()))
    finally:
        await engine.stop()


def quietly(log: Path) -> TextIO:
    """Send what is printed from now on to a file, vLLM's many words too; returns where to tell."""
    told = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    with log.open("ab") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    return told
