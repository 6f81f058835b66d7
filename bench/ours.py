"""Recordings through our own line, without queue and database: surveyed in the sandbox, each window
heard by the engine as the worker does it, merged as the transcript is.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bench.truths import Truth
from pipeline.engine import FirstToken, Heard, SpeechEngine
from pipeline.errors import RecordingRefused
from pipeline.intake.prober import Prober
from pipeline.recording import SAMPLE_BYTES, Plan, Segment, Window
from pipeline.steps.hear import hear_out
from pipeline.transcript.channel_languages import languages_of, speech_by_channel, windows_to_ask
from pipeline.transcript.merge import merge

LONGEST_S = 4 * 3_600.0
NOT_ASKED = FirstToken("", 0.0, 1.0)


@dataclass(frozen=True)
class Surveyed:
    """A recording ready to be heard, or why it is refused."""

    truth: Truth
    plan: Plan | None
    packed: bytes = b""
    """Of each window its samples, s16le at 16 kHz."""
    refused: str | None = None

    def window(self, window: Window) -> bytes:
        """The packed samples of one window."""
        first = window.first_sample * SAMPLE_BYTES
        return self.packed[first : first + window.sample_count * SAMPLE_BYTES]


@dataclass(frozen=True)
class Answer:
    """What was heard in a recording, by us or by hand."""

    segments: tuple[Segment, ...] = ()
    """In order of time, then channel."""
    labels: tuple[str, ...] = ()
    """Of channels, by number."""
    languages: tuple[FirstToken, ...] = ()
    """What was heard out, by channel; without a language where nothing was."""
    cuts_s: tuple[float, ...] = ()
    """Where one window ended and the next began, in true time."""
    windows: int = 0
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """All words, in order of time."""
        return " ".join(segment.text for segment in self.segments)

    def side(self, label: str) -> str:
        """The words on one channel; all words, where it has no channel of its own."""
        if label not in self.labels:
            return self.text
        number = self.labels.index(label)
        return " ".join(s.text for s in self.segments if s.channel == number)


def survey_all(truths: Iterable[Truth]) -> list[Surveyed]:
    """Survey recordings in the sandbox, one after the other."""
    prober = Prober(max_duration_s=LONGEST_S)
    try:
        return [_survey(prober, truth) for truth in truths]
    finally:
        prober.close()


def _survey(prober: Prober, truth: Truth) -> Surveyed:
    fd = os.open(truth.path, os.O_RDONLY)
    try:
        with tempfile.TemporaryFile(buffering=0) as packed:
            plan = prober.survey(fd, packed.fileno(), truth.name).plan
            packed.seek(0)
            return Surveyed(truth, plan, packed.read())
    except RecordingRefused as refused:
        return Surveyed(truth, None, refused=f"{refused.code}: {refused.message}")
    finally:
        os.close(fd)


@dataclass
class _Open:
    """A recording while it is heard."""

    sound: Surveyed
    thought: dict[int, FirstToken] = field(default_factory=dict)
    """By channel: what was heard out; of a channel that says too little, nothing."""
    heard: dict[int, Heard] = field(default_factory=dict)


async def hear_all(engine: SpeechEngine, sounds: Sequence[Surveyed]) -> list[Answer]:
    """Hear them all, as many windows at once as the engine has slots.

    Each channel in the language told with the recording, else in the one heard out, by the worker's
    rules (`channel_languages`); what is heard out is told in both cases.
    """
    jobs = [_Open(sound) for sound in sounds if sound.plan is not None]
    began_s = time.monotonic()
    left = iter(jobs)

    async def languages() -> None:
        for job in left:
            for channel, window in windows_to_ask(_plan(job)).items():
                job.thought[channel] = await engine.first_token(job.sound.window(window))

    await asyncio.gather(*(languages() for _ in range(engine.slots)))
    units = iter(
        [
            (job, window, language)
            for job in jobs
            for window, language in zip(_plan(job).windows, _spoken(job), strict=True)
        ]
    )

    async def windows() -> None:
        for job, window, language in units:
            ready = await engine.prepare(job.sound.window(window), language=language)
            shared_s = _plan(job).shared_s(window)
            job.heard[window.index] = await hear_out(engine, ready, window, shared_s)

    await asyncio.gather(*(windows() for _ in range(engine.slots)))
    seconds = time.monotonic() - began_s
    answers = iter([_answer(job) for job in jobs])
    found = [next(answers) if sound.plan is not None else Answer() for sound in sounds]
    whole = sum(answer.windows for answer in found) or 1
    return [replace(one, seconds=seconds * one.windows / whole) for one in found]


def _spoken(job: _Open) -> list[str]:
    """The language to hear each window in."""
    plan = _plan(job)
    if told := job.sound.truth.language:
        return [told] * len(plan.windows)
    if not job.thought:  # nobody speaks: there is no window
        return []
    thought = {n: (first.language, first.language_prob) for n, first in job.thought.items()}
    _, by_channel = languages_of(thought, speech_by_channel(plan))
    return [by_channel[window.channel] for window in plan.windows]


def _plan(job: _Open) -> Plan:
    assert job.sound.plan is not None
    return job.sound.plan


def _answer(job: _Open) -> Answer:
    plan = _plan(job)
    return Answer(
        segments=merge(plan, job.heard),
        labels=plan.channels,
        languages=tuple(job.thought.get(n, NOT_ASKED) for n in range(len(plan.channels))),
        cuts_s=cuts_of(plan.windows),
        windows=len(plan.windows),
    )


def cuts_of(windows: Sequence[Window]) -> tuple[float, ...]:
    """Where windows part, in true time: the ends of what two neighbours of a channel heard, one
    moment where these are the same, and the middle of what both heard where they overlap.
    """
    cuts: set[float] = set()
    last: Mapping[int, Window] = {}
    for window in windows:
        before = last.get(window.channel)
        if before is not None:
            end_s = before.pieces[-1].start_s + before.pieces[-1].length_s
            start_s = window.pieces[0].start_s
            if window.overlap_s or start_s - end_s < 0.05:
                cuts.add(round((end_s + start_s) / 2, 3))
            else:
                cuts |= {round(end_s, 3), round(start_s, 3)}
        last = {**last, window.channel: window}
    return tuple(sorted(cuts))
