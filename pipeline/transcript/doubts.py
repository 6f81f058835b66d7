"""Is what the engine says of a window what was said in it? Rules over one answer.

In comes the answer with its numbers and the seconds of speech the survey found in the window; out
comes a verdict. Nothing is asked of the engine here: `steps/hear.py` does that, a bounded number of
times. Thresholds and what they were measured on: docs/audio.md, "Text".

Words are removed only where two signs agree that nobody spoke; where one does they stay, with a
doubt that says why. A doubt lost costs a look, a word lost costs the call.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.engine import Heard
from pipeline.transcript.letters import bare_words, spoken_letters
from pipeline.transcript.phantoms import is_credit, is_phantom, only_notes
from pipeline.transcript.repeats import RUN_LIMIT, longest_run

NOBODY = "perhaps nobody speaks"
PHANTOM = "a phrase that models make up where nobody speaks"
NOTE = "a sound is described, nothing is said"
REPEATS = "words repeat"
END_MISSING = "the end is missing"
TOO_FAST = "more words than anybody says in that time"
FEW = "words may be missing"
UNSURE = "the model is unsure of the words"
ECHO = "words of the vocabulary are said back"

NO_SPEECH = 0.6
"""Whisper's own threshold for `<|nospeech|>`. Of 64 windows with speech none came near it."""
UNSURE_LOGPROB = -1.0
"""Whisper's own threshold for the mean over all tokens of a window."""
RATIO_LIMIT = 2.4
"""Whisper's own: text that packs better than this by zlib says the same over and over."""
WEAK_NO_SPEECH = 0.3
"""From here on, or when the model is unsure, a window that is nothing but a credit is dropped."""

FASTEST, SLOWEST = 30.0, 2.5
"""Letters a second of speech: nobody keeps up the one, hardly anybody stays below the other. People
say 10 to 20; a sign of a script without spaces counts as several letters (`spoken_letters`)."""
FAST_START = 20
"""Letters that are never too many: where speech begins and ends is known to some tenths only."""
LONG_ENOUGH_S = 5.0
"""Below so much speech nothing is said about too few words: "Yes." may take its time."""

ECHO_WORDS = 5
"""So many words of the vocabulary in its own order are hardly said by chance."""


@dataclass(frozen=True)
class Verdict:
    """What to do with an answer."""

    outcome: Literal["keep", "again", "drop"]
    doubt: str | None = None
    """Why the words are doubted, or removed; None: they are believed."""


def judge(heard: Heard, speech_s: float) -> Verdict:
    """Whether an answer is to be kept, asked for again, or dropped: its words were not said.

    `speech_s`: seconds of speech in the window. An answer to be asked for again is, when no better
    one comes, to be judged by `settle`. The loop comes first: a likely silence is no reason to
    leave a stuck decoder alone, for its words may have been said (openai/whisper #1903).
    """
    if not spoken_letters(heard.text) and (heard.finish == "stop" or _likely_nobody(heard)):
        return _of_nothing(heard, speech_s)
    if (stuck := _stuck(heard)) is not None:
        return Verdict("again", stuck)
    if _is_hasty(heard, speech_s):
        return Verdict("again", TOO_FAST)
    return _of_words(heard, speech_s)


def settle(heard: Heard) -> Verdict:
    """The last word on an answer that no further try made better."""
    if _nobody(heard):
        return Verdict("drop", NOBODY)
    return Verdict("keep", _stuck(heard) or TOO_FAST)


def _is_hasty(heard: Heard, speech_s: float) -> bool:
    """Whether more was said than so much speech can hold; never of an engine that does not hear."""
    if heard.mean_logprob is None:
        return False
    return spoken_letters(heard.text) > FAST_START + FASTEST * speech_s


def is_scant(heard: Heard, speech_s: float) -> bool:
    """Whether far fewer words came than so much speech suggests; never of an engine that does not
    tell how sure it is, for it does not hear.
    """
    if heard.mean_logprob is None or speech_s < LONG_ENOUGH_S:
        return False
    return spoken_letters(heard.text) < SLOWEST * speech_s


def echoes(text: str, vocabulary: str) -> bool:
    """Whether a text says the vocabulary back: nothing but a run of its words, or a long run of it.

    Only a suspicion: "Fairscribe." may be said back or may be what the caller said.

    >>> echoes("Miller, Fairscribe.", "Miller, Fairscribe, Quantix")
    True
    >>> echoes("Mrs. Miller bought a Quantix.", "Miller, Fairscribe, Quantix")
    False
    """
    said, terms = bare_words(text), bare_words(vocabulary)
    if not said or not terms:
        return False
    if _inside(said, terms * (len(said) // len(terms) + 2)):
        return True
    pieces = (said[at : at + ECHO_WORDS] for at in range(len(said) - ECHO_WORDS + 1))
    return any(_inside(piece, terms) for piece in pieces)


def _inside(part: Sequence[str], whole: Sequence[str]) -> bool:
    count = len(part)
    return any(list(whole[at : at + count]) == list(part) for at in range(len(whole) - count + 1))


def _of_nothing(heard: Heard, speech_s: float) -> Verdict:
    """An answer without a letter: signs at most."""
    missing = is_scant(heard, speech_s) and not _likely_nobody(heard)
    return Verdict("drop" if heard.utterances else "keep", FEW if missing else None)


def _of_words(heard: Heard, speech_s: float) -> Verdict:
    """An answer that is not stuck."""
    texts = [utterance.text for utterance in heard.utterances]
    if all(map(only_notes, texts)):
        return Verdict("drop", NOTE)
    if _nobody(heard):
        return Verdict("drop", NOBODY)
    if all(map(is_credit, texts)):
        weak = _no_speech(heard) > WEAK_NO_SPEECH or _logprob(heard) < UNSURE_LOGPROB
        return Verdict("drop" if weak else "keep", PHANTOM)
    if is_phantom(heard.text) and _likely_nobody(heard):
        return Verdict("drop", PHANTOM)
    if any(map(is_credit, texts)):
        return Verdict("keep", PHANTOM)
    if _likely_nobody(heard):
        return Verdict("keep", NOBODY)
    if _logprob(heard) < UNSURE_LOGPROB:
        return Verdict("keep", UNSURE)
    return Verdict("keep", FEW if is_scant(heard, speech_s) else None)


def _stuck(heard: Heard) -> str | None:
    """Why decoding did not come to its end; None when it did."""
    text = heard.text
    packed = text.encode("utf-8", "replace")
    ratio = len(packed) / len(zlib.compress(packed))
    if heard.finish == "repetition" or ratio > RATIO_LIMIT or longest_run(text) > RUN_LIMIT:
        return REPEATS
    return None if heard.finish == "stop" else END_MISSING


def _nobody(heard: Heard) -> bool:
    """Both signs of Whisper's own rule."""
    return _likely_nobody(heard) and _logprob(heard) < UNSURE_LOGPROB


def _likely_nobody(heard: Heard) -> bool:
    return _no_speech(heard) > NO_SPEECH


def _no_speech(heard: Heard) -> float:
    return heard.no_speech_prob or 0.0


def _logprob(heard: Heard) -> float:
    return 0.0 if heard.mean_logprob is None else heard.mean_logprob
