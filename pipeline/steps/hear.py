"""Hear one window: through the engine, and again where its answer cannot be right.

What the engine says is not believed unseen: a decoder that is stuck repeats itself, one that hears
noise makes sentences up, and one that was told a vocabulary says it back. The rules are those of
`transcript/doubts.py`; here the engine is asked again, a bounded number of times.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import SequenceMatcher

from pipeline.engine import Heard, Prepared, SpeechEngine
from pipeline.transcript.doubts import ECHO, FEW, Verdict, echoes, is_scant, judge, settle
from pipeline.transcript.letters import bare, spoken_letters
from pipeline.transcript.repeats import cut_repeats

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
