"""Hear one window: through the engine, and again where its answer cannot be right.

What the engine says is not believed unseen: a decoder that is stuck repeats itself, one that hears
noise makes sentences up, and one that was told a vocabulary says it back. The rules are those of
`transcript/doubts.py`; here the engine is asked again, a bounded number of times.

Whisper also stops some seconds before a window's end now and then: it takes the last sentence for
one that is cut off and leaves it to the next window, as its own program would have it. Our windows
do not overlap where people pause, so what it left out is heard alone (`hear_out`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from pipeline.engine import Heard, Prepared, SpeechEngine
from pipeline.recording import SAMPLE_BYTES, SAMPLE_RATE_HZ, Window
from pipeline.transcript.doubts import ECHO, FEW, Verdict, echoes, is_scant, judge, settle
from pipeline.transcript.letters import bare, spoken_letters
from pipeline.transcript.repeats import cut_repeats
from pipeline.transcript.words import speech_s as speech_between_s

RETRY_TEMPERATURES = (0.4, 0.8)
"""Tried in turn when a window loops or runs out of room: greedy decoding is stuck, so sample. The
first is tried too when a window stops after a sentence: 49 words of one window of 72 were lost so
(tiny.en, `fairscribe bench text --set gapless`)."""

TRIES = 1 + len(RETRY_TEMPERATURES)
"""A window passes through the engine so often at most, whatever is wrong with it. Each try decodes
no more than the 448 tokens a Whisper decoder holds, so a window ends after 3 x 448."""

SAME_SHARE = 0.5
"""Words suspected of being an echo were said when what comes without the vocabulary is so much like
them, letter by letter: an echo is words without sound."""

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
    left_s = speech_between_s(window.pieces, from_s, window.length_s)
    joined = _joined(heard, await hear(engine, again, left_s), from_s)
    few = heard.doubt is not None and is_scant(joined, window.speech_s)
    return replace(joined, doubt=FEW if few else None)


async def hear(engine: SpeechEngine, window: Prepared, speech_s: float) -> Heard:
    """One window through the engine, again when its answer cannot be right, `TRIES` times at most.

    `speech_s`: seconds of it in which the survey found speech.

    Returned is the most trustworthy answer, with the time and the tokens of all tries: that is what
    the window cost. `doubt` says why its words may not have been said; where they were not, there
    are none and `doubt` says why they were removed. No phrase in it stands more often in a row than
    `repeats.RUN_LIMIT`. Raises what the engine raises.
    """
    tries = [await engine.transcribe(window)]
    best = tries[0]
    echo = echoes(best.text, window.vocabulary)
    if window.vocabulary and (echo or _harmed(best, speech_s)):
        window = await engine.prepare(window.pcm, language=window.language, task=window.task)
        tries.append(await engine.transcribe(window))
        best = _of_two(best, tries[1], speech_s, echo)
    verdict = judge(best, speech_s)
    for temperature in RETRY_TEMPERATURES:
        if verdict.outcome != "again" or len(tries) == TRIES:
            break
        tries.append(await engine.transcribe(window, temperature=temperature))
        best = max(best, tries[-1], key=lambda heard: _trust(heard, speech_s))
        verdict = judge(best, speech_s)
    if verdict.doubt == FEW and best.utterances and len(tries) < TRIES:
        tries.append(await engine.transcribe(window, temperature=RETRY_TEMPERATURES[0]))
        best = _fuller(best, tries[-1], speech_s)
        verdict = judge(best, speech_s)
    if verdict.outcome == "again":
        verdict = settle(best)
    return replace(
        _as_judged(best, verdict),
        busy_s=sum(heard.busy_s for heard in tries),
        tokens=sum(heard.tokens for heard in tries),
    )


def _as_judged(heard: Heard, verdict: Verdict) -> Heard:
    """Without the words nobody said, and with the doubt about the others."""
    kept = () if verdict.outcome == "drop" else cut_repeats(heard.utterances)
    # a decoder spells in bytes and may spell any; Postgres keeps all characters but this one
    kept = tuple(replace(said, text=said.text.replace("\0", "")) for said in kept)
    return replace(heard, utterances=kept, doubt=verdict.doubt or heard.doubt)


def _harmed(heard: Heard, speech_s: float) -> bool:
    """Whether a vocabulary may have ended the words early or left too little room for them."""
    return is_scant(heard, speech_s) or judge(heard, speech_s).outcome == "again"


def _of_two(told: Heard, untold: Heard, speech_s: float, echo: bool) -> Heard:
    """Of an answer with the vocabulary and one without it the one to believe.

    What was really said comes with both, and better spelled with the vocabulary.
    """
    if echo and not _alike(told.text, untold.text):
        return untold if spoken_letters(untold.text) else replace(untold, doubt=ECHO)
    if echo:
        return max(told, untold, key=lambda heard: _rank(judge(heard, speech_s)))

    def worth(heard: Heard) -> tuple[int, float]:
        return _rank(judge(heard, speech_s)), spoken_letters(heard.text)

    return max(told, untold, key=worth)


def _fuller(few: Heard, more: Heard, speech_s: float) -> Heard:
    """The second answer where it is beyond doubt and the model is surer of it, else the first.

    Where nobody speaks the model makes words up when it samples, but is less sure of them.
    """
    surer = few.mean_logprob is not None and (more.mean_logprob or -9.0) >= few.mean_logprob
    return more if surer and judge(more, speech_s) == Verdict("keep") else few


def _alike(one: str, other: str) -> bool:
    return SequenceMatcher(None, bare(one), bare(other)).ratio() >= SAME_SHARE


def _trust(heard: Heard, speech_s: float) -> tuple[int, float]:
    logprob = heard.mean_logprob if heard.mean_logprob is not None else -9.0
    return _rank(judge(heard, speech_s)), logprob


def _rank(verdict: Verdict) -> int:
    """The more, the better: believed, doubted, removed, stuck."""
    if verdict.outcome == "keep":
        return 2 if verdict.doubt else 3
    return 1 if verdict.outcome == "drop" else 0


def _unheard_from_s(heard: Heard, window: Window, shared_s: float) -> float | None:
    """Where the speech begins that has no words, seconds of the window; None when all has."""
    # too few words is no reason to doubt the others, and what is missing may be the end
    if heard.finish != "stop" or not heard.utterances or heard.doubt not in (None, FEW):
        return None
    ended_s = heard.utterances[-1].end_s
    begins = [piece.at_s for piece in window.pieces if piece.at_s >= ended_s - LATE_S]
    from_s = min(begins, default=ended_s)
    if from_s > ended_s and speech_between_s(window.pieces, ended_s, from_s) > LEFT_S:
        from_s = ended_s  # the piece it stopped in goes on for a while
    left_s = speech_between_s(window.pieces, from_s, window.length_s - shared_s)
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
