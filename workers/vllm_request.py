"""One window as vLLM takes it: sound for the encoder, first tokens for the decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.errors import EngineDead, WindowRefused
from pipeline.recording import SAMPLE_RATE_HZ

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.outputs import RequestOutput
    from vllm.v1.engine.async_llm import AsyncLLM

FINISHES = ("stop", "length", "repetition")
"""How an answer may end; anything else is none."""


class EngineGone(Exception):
    """The process that computes is dead, under this request and all others."""


async def rendered(engine: AsyncLLM, pcm: bytes, prompt: list[int]) -> Any:
    """The request for a window of s16le samples; its mel spectrogram is made on vLLM's thread.

    Raises `WindowRefused` when vLLM takes no such window, `RuntimeError` when its threads are gone.
    """
    from vllm.renderers.inputs.preprocess import parse_model_prompt

    # From integers, so always finite: one NaN would poison the cache for later windows too.
    samples = np.frombuffer(pcm, "<i2").astype(np.float32) / 32768.0
    audio = {"prompt": "", "multi_modal_data": {"audio": (samples, SAMPLE_RATE_HZ)}}
    request = {"encoder_prompt": audio, "decoder_prompt": {"prompt_token_ids": prompt}}
    try:
        (made,) = await engine.renderer.render_cmpl_async(
            [parse_model_prompt(engine.model_config, request)]
        )
    except ValueError as error:
        raise WindowRefused(f"The speech engine refused the window: {error!r}.") from error
    # vLLM puts <|startoftranscript|> before a prompt that does not begin with it, also before
    # <|startofprev|>. No Whisper was ever trained on that: told a vocabulary it then said nothing.
    made["decoder_prompt"]["prompt_token_ids"] = list(prompt)
    return made


def text_tokens(tokenizer: Any, text: str) -> list[int]:
    """A text as the decoder would have said it: after a space, without Whisper's own tokens around
    it. What the text spells is tokens all the same: `WhisperTokens.prompt` leaves out those that
    are not text.
    """
    words = " ".join(text.split())
    return list(tokenizer.encode(f" {words}", add_special_tokens=False)) if words else []


def prompt_of(request: Any) -> list[int]:
    """The tokens the decoder of a rendered request is made to say first."""
    return list(request["decoder_prompt"]["prompt_token_ids"])


async def answered(
    engine: AsyncLLM, request: Any, sampling: SamplingParams, name: str
) -> RequestOutput:
    """The decoder's whole answer to a rendered request; cancelling aborts it in the engine.

    `name` is the request's, of no other's in flight. Raises `EngineGone` when the engine died,
    `WindowRefused` when it takes no such request, `EngineDead` when it gave this one up.
    """
    from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

    answer = None
    try:
        async for output in engine.generate(request, sampling, name):
            answer = output
    except EngineDeadError as error:
        raise EngineGone from error
    except (EngineGenerateError, ValueError) as error:
        raise WindowRefused(f"The speech engine refused the window: {error!r}.") from error
    if answer is None or answer.outputs[0].finish_reason not in FINISHES:
        raise EngineDead("The speech engine gave up a window.")
    return answer
