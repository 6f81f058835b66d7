"""What vLLM's answers are taken for, without vLLM."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.engine import Heard
from pipeline.errors import EngineDead, LanguageUnknown
from tests.speech_windows import hear
from workers.in_flight import InFlight
from workers.vllm_engine import VllmEngine
from workers.vllm_environment import cpu_dtype
from workers.whisper_tokens import WhisperTokens

CONFIG = SimpleNamespace(decoder_start_token_id=101, eos_token_id=100)
ENGLISH = {"no_timestamps_token_id": 110, "suppress_tokens": [1, 2]}
MANY = ENGLISH | {
    "lang_to_id": {"<|en|>": 102, "<|de|>": 103},
    "task_to_id": {"transcribe": 105, "translate": 104},
}
SECOND = bytes(32_000)


class Answering(VllmEngine):
    """An engine whose decoder says what it is told."""

    def __init__(self, token_ids: list[int], logprob: float = -1.0, finish: str = "stop") -> None:
        super().__init__("nowhere")
        self.said = SimpleNamespace(
            token_ids=token_ids, cumulative_logprob=logprob, finish_reason=finish
        )

    async def _render(self, pcm: bytes, prompt: list[int]) -> Any:
        return {"decoder_prompt": {"prompt_token_ids": prompt}}

    async def _decode(self, request: Any, temperature: float) -> Any:
        return self.said

    def _decode_text(self, ids: list[int]) -> str:
        return "".join(f" w{i}" for i in ids)

    async def be_asked(self, generation: Mapping[str, Any] = ENGLISH) -> Heard:
        self._windows = self._windows or InFlight()
        self._tokens = WhisperTokens.from_configs(CONFIG, generation)
        return await hear(self, SECOND)


def test_an_answer_becomes_utterances_tokens_and_a_mean() -> None:
    heard = asyncio.run(Answering([5, 6, 111 + 40, 100], logprob=-2.0).be_asked())
    assert heard.text == "w5 w6"
    assert [(u.start_s, u.end_s) for u in heard.utterances] == [(0.0, 0.8)]
    assert heard.tokens == 2 + 4  # the prompt and what was said
    assert heard.mean_logprob == -0.5


@pytest.mark.parametrize("finish", ["stop", "length", "repetition"])
def test_why_decoding_ended_is_told(finish: str) -> None:
    assert asyncio.run(Answering([5], finish=finish).be_asked()).finish == finish


@pytest.mark.parametrize(
    ("token_ids", "logprob"),
    [([0, 0, 0], -1.0), ([0] * 200, -1.0), ([5, 6], float("nan"))],
    ids=["!!!", "many !", "no number"],
)
def test_a_poisoned_engine_is_dead_for_every_later_window(
    token_ids: list[int], logprob: float
) -> None:
    async def story() -> None:
        engine = Answering(token_ids, logprob)
        with pytest.raises(EngineDead, match="poisoned"):
            await engine.be_asked()
        engine.said.token_ids, engine.said.cumulative_logprob = [5], -1.0
        with pytest.raises(EngineDead, match="poisoned"):
            await engine.be_asked()

    asyncio.run(story())


@pytest.mark.parametrize("token_ids", [[0], [0, 0], [0, 5, 0, 0]])
def test_an_exclamation_is_no_poison(token_ids: list[int]) -> None:
    assert asyncio.run(Answering(token_ids).be_asked()).tokens == 2 + len(token_ids)


def test_an_english_model_is_told_nothing_but_to_start_at_zero() -> None:
    tokens = WhisperTokens.from_configs(CONFIG, ENGLISH)
    assert tokens.prompt("en") == [101, 111]
    with pytest.raises(LanguageUnknown, match="English only"):
        tokens.prompt("de")
    assert tokens.prompt("en", "translate") == tokens.prompt("en")


def test_a_multilingual_model_is_told_language_and_task() -> None:
    tokens = WhisperTokens.from_configs(CONFIG, MANY)
    assert tokens.prompt("de") == [101, 103, 105, 111]
    assert tokens.prompt("de", "translate") == [101, 103, 104, 111]
    assert tokens.language_of(103) == "de"
    with pytest.raises(LanguageUnknown, match="'xx'"):
        tokens.prompt("xx")


def test_the_wish_for_no_times_is_suppressed_with_the_rest() -> None:
    tokens = WhisperTokens.from_configs(CONFIG, ENGLISH)
    assert tokens.logit_bias() == {1: -100.0, 2: -100.0, 110: -100.0}


def test_a_model_that_is_not_whisper_is_dead_on_arrival() -> None:
    with pytest.raises(EngineDead, match="not a Whisper model"):
        WhisperTokens.from_configs(SimpleNamespace(), {})


@pytest.mark.parametrize(
    ("flags", "dtype"),
    [
        ("fpu avx2", "float32"),
        ("fpu avx512f avx512_bf16", "bfloat16"),
        ("fpu amx_bf16 amx_tile", "bfloat16"),
        (None, "float32"),
    ],
)
def test_bfloat16_only_where_the_cpu_has_it(tmp_path: Path, flags: str | None, dtype: str) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    if flags is not None:
        cpuinfo.write_text(f"processor : 0\nflags\t\t: {flags}\n\nprocessor : 1\n")
    assert cpu_dtype(cpuinfo) == dtype


def test_death_and_cancellation_reach_work_in_flight() -> None:
    async def story() -> None:
        windows, ended = InFlight(), []

        async def work() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(1)

        first = asyncio.ensure_future(windows.run(work()))
        second = asyncio.ensure_future(windows.run(work()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        # When the caller gives up, the work is over before the caller goes on
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert len(ended) == 1
        # When the engine dies, the work still running is told and later work never begins
        windows.die("fell over")
        with pytest.raises(EngineDead, match="fell over"):
            await second
        with pytest.raises(EngineDead, match="fell over"):
            await windows.run(work())
        assert len(ended) == 2

    asyncio.run(story())
