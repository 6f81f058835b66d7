"""From nothing to the first words, and what it holds: python -m bench.start [MODEL ...]

Prints one line of JSON a model: {"model", "engine_s", "first_text_s", "first_text_cpu_s",
"rest_mb", "work_mb"}. The times count from the start of a fresh process; `first_text_cpu_s` are CPU
seconds of all its processes, which a busy neighbour does not stretch. Memory is told for each
process as resident and as proportional (pages shared among them divided), at rest and at its
highest with every slot taken. Byte code of vLLM has to be there, as `make setup` leaves it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from bench.memory import sizes_mb
from pipeline.intake.opening import NamelessFile
from pipeline.intake.pack import survey
from pipeline.weights import find_model
from workers.vllm_engine import VllmEngine

RECORDING = Path(__file__).parent / "recordings" / "new_address.mp3"
WORK_S = 5.0


def main() -> None:
    for model in sys.argv[1:] or ["tiny.en", "base"]:
        with tempfile.TemporaryDirectory() as home:
            folder = find_model(model, Path(home))
            began = repr(time.time())
            words = [sys.executable, "-m", "bench.start", "--child", model, folder, began]
            subprocess.run(words, check=True)


async def child(model: str, folder: str, began: float) -> None:
    """Everything in one process and its children."""
    window = speech()
    engine = VllmEngine(folder)
    await engine.start()
    engine_s = time.time() - began
    heard = await engine.transcribe(await engine.prepare(window, language="en"))
    first_text_s = time.time() - began
    cpu_s = sum(sum(p.cpu_times()[:2]) for p in family())
    assert heard.text
    rest = memory()
    work = await memory_at_work(engine, window)
    await engine.stop()
    left = [p for p in psutil.Process().children() if "resource_tracker" not in p.cmdline()[-1]]
    assert not left, left
    figures = {"engine_s": round(engine_s, 1), "first_text_s": round(first_text_s, 1)}
    figures["first_text_cpu_s"] = round(cpu_s, 1)
    print(json.dumps({"model": model, **figures, "rest_mb": rest, "work_mb": work}), flush=True)


def speech() -> bytes:
    """The first window of a recording."""
    with RECORDING.open("rb") as file, tempfile.TemporaryFile() as packed:
        plan = survey(NamelessFile(file.fileno()), packed, RECORDING.name, max_duration_s=60).plan
        packed.seek(0)
        return packed.read(plan.windows[0].sample_count * 2)


async def memory_at_work(engine: VllmEngine, window: bytes) -> dict[str, dict[str, int]]:
    """The highest seen of each process while every slot is taken."""
    highest: dict[str, dict[str, int]] = {}

    async def hear() -> None:
        while time.monotonic() < end_s:
            await engine.transcribe(await engine.prepare(window, language="en"))

    end_s = time.monotonic() + WORK_S
    slots = asyncio.gather(*(hear() for _ in range(engine.slots)))
    while not slots.done():
        await asyncio.sleep(0.5)
        for name, kinds in memory().items():
            seen = highest.setdefault(name, kinds)
            highest[name] = {kind: max(seen[kind], size) for kind, size in kinds.items()}
    await slots
    return highest


def family() -> list[psutil.Process]:
    """The process that runs this, and all it started."""
    return [psutil.Process(), *psutil.Process().children(recursive=True)]


def memory() -> dict[str, dict[str, int]]:
    """{process: {rss, pss}} of this process and its children, megabytes."""
    found = {}
    for process in family():
        command = " ".join(process.cmdline())
        named = {"EngineCore": "engine core", "forkserver": "fork server", "tracker": "tracker"}
        name = next((name for mark, name in named.items() if mark in command), "worker")
        found[name] = sizes_mb(process.pid)
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        asyncio.run(child(sys.argv[2], sys.argv[3], float(sys.argv[4])))
    else:
        main()
