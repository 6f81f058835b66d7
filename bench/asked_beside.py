"""What it costs to ask, in the request that transcribes, whether anybody speaks.

    python -m bench.asked_beside [--model tiny.en] [--runs 5]

The same windows with and without the question, in turn, eight in flight: CPU seconds of all our
processes a run, their medians, and how many windows came out with the same tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.raw import cpu_s
from bench.sets import PIECES, RECORDINGS, surveyed
from pipeline.engine import Prepared
from pipeline.weights import find_model
from workers.vllm_engine import VllmEngine

TIMES = 3
"""Each window is heard so often a run."""


class Curious(VllmEngine):
    """Asks or does not; keeps what the decoder said."""

    asks = True

    async def _ask(self, request: Any, sampling: Any) -> Any:
        if not self.asks:
            sampling.prompt_logprobs = None
        return await super()._ask(request, sampling)

    async def said(self, window: Prepared) -> list[int]:
        """The tokens of an answer."""
        output = await self._decode(window.features, 0.0)
        return list(output.outputs[0].token_ids)


async def measure(model: str, runs: int) -> str:
    """All runs on one engine."""
    engine = Curious(find_model(model, Path(tempfile.gettempdir()) / "bench-asked"), slots=8)
    await engine.start()
    try:
        pcm = [surveyed(RECORDINGS / piece)[1][: 2 * 16_000 * 30] for piece in PIECES]
        windows = [await engine.prepare(p, language="en") for p in pcm] * TIMES
        cost: dict[bool, list[float]] = {True: [], False: []}
        tokens: dict[bool, list[list[int]]] = {}
        for run in range(runs):
            for asks in (run % 2 == 0, run % 2 == 1):
                engine.asks = asks
                before_s = cpu_s()
                tokens[asks] = await asyncio.gather(*map(engine.said, windows))
                cost[asks].append(round(cpu_s() - before_s, 2))
    finally:
        await engine.stop()
    same = sum(a == b for a, b in zip(tokens[True], tokens[False], strict=True))
    with_it, without = statistics.median(cost[True]), statistics.median(cost[False])
    return (
        f"{model}: CPU seconds asked {cost[True]}, median {with_it}; not asked {cost[False]}, "
        f"median {without}; {100 * (with_it / without - 1):+.1f} %; "
        f"same tokens {same} of {len(windows)}"
    )


def main() -> None:
    """Measure and print a line."""
    parser = argparse.ArgumentParser(prog="python -m bench.asked_beside", description=__doc__)
    parser.add_argument("--model", default="tiny.en")
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # vLLM prints there too
    print(asyncio.run(measure(asked.model, asked.runs)), file=out, flush=True)


if __name__ == "__main__":
    main()
