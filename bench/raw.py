"""vLLM's own engine on surveyed windows, with nothing of ours around it.

    python -m bench.raw offline|async MODEL_FOLDER WINDOWS_FOLDER SLOTS LANGUAGE

WINDOWS_FOLDER holds *.pcm (mono s16le at 16 kHz). Writes "ready" when warm; then, for each line it
reads, hears all windows once and writes {"seconds", "cpu_s", "texts"}; ends with its input.

offline is `LLM.generate`, which computes in this very process; async is `AsyncLLM` with as many
windows in flight as there are slots, fed by a bare loop. Prompt, sampling, number format, threads
and cache are those of `workers/vllm_engine.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import psutil

from workers.vllm_engine import VllmEngine
from workers.vllm_environment import prepare_environment
from workers.whisper_tokens import WhisperTokens, sampling_params


class Raw:
    """What both have in common: prompts, sampling, words."""

    def __init__(self, model: str, folder: Path, slots: int, language: str) -> None:
        # vLLM prints there too
        self.out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        prepare_environment(model=model, threads=0)
        self.args = VllmEngine(model, slots=slots)._engine_args()
        self.slots, self.language = slots, language
        self.windows = [file.read_bytes() for file in sorted(folder.glob("*.pcm"))]

    def prepare(self, model_config: Any, tokenizer: Any) -> None:
        """Once the model is known."""
        generation = model_config.try_get_generation_config()
        self.tokens = WhisperTokens.from_configs(model_config.hf_config, generation)
        self.prompt = self.tokens.prompt(self.language)
        room = model_config.max_model_len - len(self.prompt)
        self.sampling = sampling_params(self.tokens, temperature=0.0, max_tokens=room)
        self.tokenizer = tokenizer

    def request(self, pcm: bytes) -> Any:
        """A window as vLLM takes it."""
        samples = np.frombuffer(pcm, "<i2").astype(np.float32) / 32768.0
        audio = {"prompt": "", "multi_modal_data": {"audio": (samples, 16_000)}}
        return {"encoder_prompt": audio, "decoder_prompt": {"prompt_token_ids": self.prompt}}

    def text(self, output: Any) -> str:
        """The words of an answer."""
        ids = [i for i in output.outputs[0].token_ids if i < self.tokens.end]
        return str(self.tokenizer.decode(ids)).strip()


def offline(raw: Raw) -> None:
    """`LLM.generate`."""
    from vllm import LLM

    llm = LLM(**raw.args)
    raw.prepare(llm.llm_engine.model_config, llm.get_tokenizer())

    def run() -> list[str]:
        outputs = llm.generate(
            [raw.request(pcm) for pcm in raw.windows], raw.sampling, use_tqdm=False
        )
        return [raw.text(output) for output in outputs]

    llm.generate([raw.request(raw.windows[0])], raw.sampling, use_tqdm=False)
    answer(run, raw.out)


def answer(run: Any, out: TextIO) -> None:
    """Serve runs until the input ends."""
    print("ready", file=out, flush=True)
    for _ in sys.stdin:
        began_s, began_cpu_s = time.monotonic(), cpu_s()
        texts = run()
        seconds = time.monotonic() - began_s
        told = {"seconds": seconds, "cpu_s": cpu_s() - began_cpu_s, "texts": texts}
        print(json.dumps(told), file=out, flush=True)


def in_flight(raw: Raw) -> None:
    """`AsyncLLM` and a bare loop."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    with asyncio.Runner() as runner:

        async def start() -> Any:
            return AsyncLLM.from_engine_args(AsyncEngineArgs(**raw.args))

        engine = runner.run(start())
        raw.prepare(engine.model_config, engine.get_tokenizer())
        runner.run(_hear(engine, raw, raw.windows[:1]))
        answer(lambda: runner.run(_hear(engine, raw, raw.windows)), raw.out)
        engine.shutdown(timeout=2)


async def _hear(engine: Any, raw: Raw, windows: list[bytes]) -> list[str]:
    from vllm.renderers.inputs.preprocess import parse_model_prompt

    texts = [""] * len(windows)
    left = iter(enumerate(windows))
    # twice as many as there are slots: the next ones are rendered meanwhile
    slots = asyncio.Semaphore(raw.slots)

    async def one_by_one() -> None:
        for number, pcm in left:
            parsed = parse_model_prompt(engine.model_config, raw.request(pcm))
            (rendered,) = await engine.renderer.render_cmpl_async([parsed])
            async with slots:
                async for output in engine.generate(rendered, raw.sampling, f"w{number}"):
                    texts[number] = raw.text(output)

    await asyncio.gather(*(one_by_one() for _ in range(2 * raw.slots)))
    return texts


def cpu_s() -> float:
    """CPU seconds of this process and its children so far."""
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return float(sum(sum(p.cpu_times()[:2]) for p in family))


if __name__ == "__main__":
    kind, model, folder, slots, language = sys.argv[1:]
    {"offline": offline, "async": in_flight}[kind](Raw(model, Path(folder), int(slots), language))
