"""Whether an engine hears: a second of speech whose words are known, shipped with the worker.

"How can I help you today?", 1.7 s of mono s16le at 16 kHz, cut from one of our own recordings
(`bench/make_recordings.py` spoke it). A process that lives and an engine that answers prove
nothing: wrong drivers, damaged weights and poisoned caches answer too, with no words or wrong ones.
"""

from __future__ import annotations

import hashlib
from difflib import SequenceMatcher
from pathlib import Path

from pipeline.engine import SpeechEngine
from pipeline.errors import EngineDead, EngineHung, EnginePoisoned, FairscribeError, WindowLate
from pipeline.recording import SAMPLE_BYTES, SAMPLE_RATE_HZ
from pipeline.transcript.letters import bare

PCM = Path(__file__).with_suffix(".pcm")
WORDS = "How can I help you today?"

ALIKE = 0.6
"""Letters in common: small models may miss a word of it, none that works misses most."""


def expected(engine: str, pcm: bytes) -> str:
    """What an engine of this name says of the known second."""
    if engine == "echo":
        length_s = len(pcm) / SAMPLE_BYTES / SAMPLE_RATE_HZ
        return f"echo {length_s:.2f} {hashlib.sha256(pcm).hexdigest()[:8]}"
    return WORDS


def is_right(said: str, words: str) -> bool:
    """Whether what was said is those words, but for a slip.

    >>> is_right(" how can I help you to day", WORDS), is_right("you", WORDS), is_right("", WORDS)
    (True, False, False)
    """
    return SequenceMatcher(None, bare(said), bare(words)).ratio() >= ALIKE


async def hear_known(engine: SpeechEngine) -> None:
    """Hear the known second.

    Raises `EnginePoisoned` when its words are wrong, another `EngineDead` when there is no answer.
    """
    pcm = PCM.read_bytes()
    try:
        heard = await engine.transcribe(await engine.prepare(pcm, language="en"))
    except WindowLate as late:
        raise EngineHung from late
    except EngineDead:
        raise
    except FairscribeError as refused:
        why = f"The speech engine does not hear a known second of speech: {refused.message}"
        raise EngineDead(why) from refused
    if not is_right(heard.text, expected(engine.name, pcm)):
        why = f"The speech engine said {heard.text[:100]!r} where {WORDS!r} was said."
        raise EnginePoisoned(why)
