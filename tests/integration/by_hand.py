"""Hear windows by hand with vLLM's plain `LLM`, then through our engine, and wait to be killed.

    python -m tests.integration.by_hand MODEL_FOLDER FOLDER

FOLDER holds windows as *.pcm (mono s16le at 16 kHz). Writes `by_hand.json` and `engine.json`, a
list with token ids and text for each window in order of name, then `ready` with the process ids
of the engine's children, one a line. Lives in a process of its own: `LLM` computes in the process
that makes it, and this process has to die while its engine is alive.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from workers.vllm_engine import VllmEngine


def by_hand(model: Path, windows: list[bytes]) -> list[dict[str, Any]]:
    """Nothing of ours: the prompt's ids and the suppressed tokens straight from the files."""
    from tokenizers import Tokenizer
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import RepetitionDetectionParams

    generation = json.loads((model / "generation_config.json").read_text())
    start, no_timestamps = 50_257, 50_362
    llm = LLM(
        model=str(model),
        dtype="float32",
        enforce_eager=True,
        max_num_batched_tokens=12_288,
        max_num_seqs=4,
        kv_cache_memory_bytes=1 << 29,
        limit_mm_per_prompt={"audio": 1},
    )
    sampling = SamplingParams(
        temperature=0.0,
        max_tokens=446,
        logit_bias=dict.fromkeys([*generation["suppress_tokens"], no_timestamps], -100.0),
        repetition_detection=RepetitionDetectionParams(
            max_pattern_size=40, min_pattern_size=1, min_count=8
        ),
    )
    prompts = [
        {
            "encoder_prompt": {
                "prompt": "",
                "multi_modal_data": {
                    "audio": (np.frombuffer(w, "<i2").astype(np.float32) / 32768, 16_000)
                },
            },
            "decoder_prompt": {"prompt_token_ids": [start, no_timestamps + 1]},
        }
        for w in windows
    ]
    outputs = llm.generate(prompts, sampling)
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    said = [list(output.outputs[0].token_ids) for output in outputs]
    del llm, outputs
    gc.collect()
    return [
        {"tokens": ids, "text": tokenizer.decode([i for i in ids if i < 50_256]).strip()}
        for ids in said
    ]


class Listening(VllmEngine):
    """Our engine, with the decoder's ids written down as they pass."""

    def __init__(self, model: str) -> None:
        super().__init__(model, slots=4, dtype="float32", kv_cache_gib=0.5)
        self.said: dict[int, list[int]] = {}

    async def _decode(self, request: Any, temperature: float) -> Any:
        said = await super()._decode(request, temperature)
        self.said[id(request)] = list(said.outputs[0].token_ids)
        return said


async def through_engine(model: Path, folder: Path, windows: list[bytes]) -> None:
    engine = Listening(str(model))
    await engine.start()
    ready = await asyncio.gather(*(engine.prepare(w, language="en") for w in windows))
    heard = await asyncio.gather(*(engine.transcribe(window) for window in ready))
    answers = [
        {"tokens": engine.said[id(window.features)], "text": h.text}
        for window, h in zip(ready, heard, strict=True)
    ]
    (folder / "engine.json").write_text(json.dumps(answers))
    children = [str(child.pid) for child in psutil.Process().children(recursive=True)]
    (folder / "pids").write_text("\n".join(children))
    (folder / "pids").rename(folder / "ready")
    await asyncio.sleep(600)


def main() -> None:
    model, folder = Path(sys.argv[1]), Path(sys.argv[2])
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "OMP_WAIT_POLICY": "PASSIVE",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    windows = [file.read_bytes() for file in sorted(folder.glob("*.pcm"))]
    (folder / "by_hand.json").write_text(json.dumps(by_hand(model, windows)))
    asyncio.run(through_engine(model, folder, windows))


if __name__ == "__main__":
    main()
