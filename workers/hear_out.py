"""Hear a window to its end.

Whisper now and then stops some seconds before a window's end: it takes the last sentence for one
that is cut off and leaves it to the next window, as its own program would have it. Our windows do
not overlap where people pause, so what it left out is heard alone. Measured with tiny.en: 3 of 44
windows of sentences with pauses (`python -m bench.times`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipeline.engine import Heard, Prepared, SpeechEngine
from pipeline.recording import SAMPLE_BYTES, SAMPLE_RATE_HZ, Window
from pipeline.steps.hear import hear
from pipeline.transcript.doubts import FEW, is_scant
from pipeline.transcript.words import speech_s

LEFT_S = 1.0
"""Seconds of speech without words that are heard again: less is a breath, or the end of a word."""
LATE_S = 0.7
"""Whisper's times are late by up to this: speech that begins so shortly before its last time has
not been heard."""


async def hear_out(
    engine: SpeechEngine, prepared: Prepared, window: Window, shared_s: float = 0.0
) -> Heard:
    """Hear a window, and what it left out at its end once more alone.

    `shared_s`: seconds at its end that the next window hears too, and need not be heard again.
    What it cost is the sum of both. Words of the second hearing that are doubted are left out: a
    window may end in what is no speech at all. Raises what the engine raises.
    """
    heard = await hear(engine, prepared, window.speech_s)
    from_s = _unheard_from_s(heard, window, shared_s)
    if from_s is None:
        return heard
    rest = prepared.pcm[round(from_s * SAMPLE_RATE_HZ) * SAMPLE_BYTES :]
    again = await engine.prepare(
        rest,
        language=prepared.language,
        task=prepared.task,
        vocabulary=prepared.vocabulary,
    )
    left_s = speech_s(window.pieces, from_s, window.length_s)
    joined = _joined(heard, await hear(engine, again, left_s), from_s)
    few = heard.doubt is not None and is_scant(joined, window.speech_s)
    return replace(joined, doubt=FEW if few else None)


def _unheard_from_s(heard: Heard, window: Window, shared_s: float) -> float | None:
    """Where the speech begins that has no words, seconds of the window; None when all has."""
    # too few words is no reason to doubt the others, and what is missing may be the end
    if heard.finish != "stop" or not heard.utterances or heard.doubt not in (None, FEW):
        return None
    ended_s = heard.utterances[-1].end_s
    begins = [piece.at_s for piece in window.pieces if piece.at_s >= ended_s - LATE_S]
    from_s = min(begins, default=ended_s)
    if from_s > ended_s and speech_s(window.pieces, ended_s, from_s) > LEFT_S:
        from_s = ended_s  # the piece it stopped in goes on for a while
    left_s = speech_s(window.pieces, from_s, window.length_s - shared_s)
    return from_s if left_s >= LEFT_S else None


def _joined(heard: Heard, rest: Heard, from_s: float) -> Heard:
    """Both as one answer; the times of `rest` count from `from_s`."""
    both = replace(heard, tokens=heard.tokens + rest.tokens, busy_s=heard.busy_s + rest.busy_s)
    if rest.doubt is not None or rest.finish != "stop" or not rest.utterances:
        return both
    before = [replace(said, end_s=min(said.end_s, from_s)) for said in heard.utterances]
    after = [
        replace(said, start_s=from_s + said.start_s, end_s=from_s + said.end_s)
        for said in rest.utterances
    ]
    return replace(
        both,
        utterances=tuple(
            replace(said, start_s=min(said.start_s, said.end_s)) for said in (*before, *after)
        ),
        mean_logprob=_mean((heard, rest)),
    )


def _mean(answers: Sequence[Heard]) -> float | None:
    """Their mean log-probability, each by its tokens; None when one does not tell."""
    told = [(heard.mean_logprob, heard.tokens) for heard in answers]
    tokens = sum(count for _, count in told)
    if not tokens or any(logprob is None for logprob, _ in told):
        return None
    return sum(logprob * count for logprob, count in told if logprob is not None) / tokens
