"""What vLLM's answers are taken for, without vLLM."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.engine import Heard
from pipeline.errors import EngineDead, EngineFull, LanguageUnknown, WindowLate
from pipeline.weights import PACKAGED, find_model
from tests.speech_windows import hear
from workers.in_flight import InFlight
from workers.vllm_engine import VllmEngine
from workers.vllm_environment import cpu_dtype, engine_args
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
            token_ids=token_ids,
            cumulative_logprob=logprob,
            finish_reason=finish,
            logprobs=[{i: SimpleNamespace(logprob=logprob)} for i in token_ids],
        )
        self.prompt_logprobs: list[Any] = []

    async def _render(self, pcm: bytes, prompt: list[int]) -> Any:
        return {"decoder_prompt": {"prompt_token_ids": prompt}}

    async def _decode(self, request: Any, temperature: float) -> Any:
        return SimpleNamespace(outputs=[self.said], prompt_logprobs=self.prompt_logprobs)

    def _tokenizer(self) -> Any:
        return SimpleNamespace(encode=lambda text, **_: [7] * len(text.split()))

    def _decode_text(self, ids: list[int]) -> str:
        return "".join(f" w{i}" for i in ids)

    async def be_asked(self, generation: Mapping[str, Any] = ENGLISH, **asked: Any) -> Heard:
        self._windows = self._windows or InFlight()
        self._tokens = WhisperTokens.from_configs(CONFIG, generation)
        return await hear(self, SECOND, **asked)


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


@pytest.mark.parametrize(
    ("generation", "start", "previous", "no_speech"),
    [
        # openai/whisper-tiny.en, -base and -large-v3: <|startoftranscript|>, <|notimestamps|>
        (ENGLISH | {"no_timestamps_token_id": 50_362}, 50_257, 50_360, 50_361),
        (MANY | {"no_timestamps_token_id": 50_363}, 50_258, 50_361, 50_362),
        (MANY | {"no_timestamps_token_id": 50_364}, 50_258, 50_362, 50_363),
    ],
    ids=["tiny.en", "base", "large-v3"],
)
def test_the_tokens_before_and_for_nobody_stand_before_that_for_no_times(
    generation: Mapping[str, Any], start: int, previous: int, no_speech: int
) -> None:
    config = SimpleNamespace(decoder_start_token_id=start, eos_token_id=start - 1)
    tokens = WhisperTokens.from_configs(config, generation)
    assert (tokens.previous, tokens.no_speech) == (previous, no_speech)


@pytest.mark.parametrize("model", ["tiny.en", "base"])
def test_they_are_those_of_the_packaged_tokenizers(model: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(PACKAGED[model].config[0]) is None:
        pytest.skip(f"{model} is not installed")
    folder = Path(find_model(model, tmp_path))
    generation = json.loads((folder / "generation_config.json").read_text())
    config = SimpleNamespace(**json.loads((folder / "config.json").read_text()))
    tokens = WhisperTokens.from_configs(config, generation)
    known = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    names = {token["id"]: token["content"] for token in known}
    assert names[tokens.start] == "<|startoftranscript|>"
    assert names[tokens.previous] == "<|startofprev|>"
    assert names[tokens.no_speech] == "<|nocaptions|>"


def test_a_vocabulary_is_what_was_said_before() -> None:
    tokens = WhisperTokens.from_configs(CONFIG, MANY)
    assert tokens.prompt("de", previous=[7, 8]) == [108, 7, 8, 101, 103, 105, 111]
    english = WhisperTokens.from_configs(CONFIG, ENGLISH)
    assert english.prompt("en", previous=[7]) == [108, 7, 101, 111]


def test_of_a_long_vocabulary_the_last_tokens_count() -> None:
    tokens = WhisperTokens.from_configs(CONFIG, MANY)
    prompt = tokens.prompt("de", previous=[1] * 300 + [2] * 223)
    assert prompt == [108] + [2] * 223 + [101, 103, 105, 111]
    assert len(prompt) <= 448 / 2 + 4


def test_a_vocabulary_cannot_give_the_decoder_orders() -> None:
    tokens = WhisperTokens.from_configs(CONFIG, MANY)
    hostile = [tokens.start, tokens.end, tokens.previous, tokens.first_timestamp]
    assert tokens.prompt("de", previous=hostile) == tokens.prompt("de")
    assert tokens.prompt("de", previous=[7, *hostile, 8]) == tokens.prompt("de", previous=[7, 8])


def test_how_likely_nobody_speaks_is_read_where_the_transcript_starts() -> None:
    engine = Answering([5])
    likely = {109: SimpleNamespace(logprob=-0.5), 102: SimpleNamespace(logprob=-1.0)}
    engine.prompt_logprobs = [None, likely, {109: SimpleNamespace(logprob=-9.0)}]
    assert asyncio.run(engine.be_asked()).no_speech_prob == pytest.approx(math.exp(-0.5))
    # after a vocabulary of two words it stands three places later
    engine.prompt_logprobs = [None, {}, {}, {}, likely, {}]
    heard = asyncio.run(engine.be_asked(vocabulary="Miller  Fairscribe"))
    assert heard.no_speech_prob == pytest.approx(math.exp(-0.5))
    assert heard.tokens == 5 + 1


def test_a_silence_that_is_no_number_is_poison() -> None:
    engine = Answering([5])
    engine.prompt_logprobs = [None, {109: SimpleNamespace(logprob=math.nan)}]
    with pytest.raises(EngineDead, match="poisoned"):
        asyncio.run(engine.be_asked())


def test_an_utterance_is_as_sure_as_its_words() -> None:
    engine = Answering([5, 6, 111 + 40, 100], logprob=-2.0)
    engine.said.logprobs = [{5: _at(-1.0)}, {6: _at(-0.5)}, {151: _at(-7.0)}, {100: _at(-3.0)}]
    (said,) = asyncio.run(engine.be_asked()).utterances
    assert said.mean_logprob == -0.75  # the end of it and of the window do not count


def _at(logprob: float) -> Any:
    return SimpleNamespace(logprob=logprob)


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


def test_a_window_without_an_answer_is_given_up_and_others_are_not() -> None:
    async def story() -> None:
        windows, ended = InFlight(limit_s=0.1), []

        async def never() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(1)

        other = asyncio.ensure_future(windows.run(asyncio.sleep(0.05, "heard")))
        with pytest.raises(WindowLate, match=r"within 0\.1 s"):
            await windows.run(never())
        assert ended == [1]  # it has let go of its slot
        assert await other == "heard"
        assert not windows.dead

    asyncio.run(story())


def test_the_kind_of_a_death_reaches_every_window_the_first_kind_holds() -> None:
    async def story() -> None:
        windows = InFlight()
        inside = [asyncio.ensure_future(windows.run(asyncio.sleep(60))) for _ in range(2)]
        await asyncio.sleep(0)
        windows.die("full", EngineFull)
        windows.die("stopped")
        for ended in await asyncio.gather(*inside, return_exceptions=True):
            assert isinstance(ended, EngineFull)
            assert ended.message == "full"

    asyncio.run(story())


def test_with_few_slots_no_more_windows_are_encoded_at_once_than_there_are() -> None:
    assert engine_args("m", "auto", 32)["max_num_batched_tokens"] == 8 * 1536
    assert engine_args("m", "auto", 3)["max_num_batched_tokens"] == 3 * 1536
