"""Hear one window: through the engine, and again where its answer cannot be right.

What the engine says is not believed unseen: a decoder that is stuck repeats itself, and one that
hears noise makes sentences up.
"""

from __future__ import annotations

from dataclasses import replace

from pipeline.engine import Heard, Prepared, SpeechEngine

RETRY_TEMPERATURES = (0.4, 0.8)
"""Tried in turn when a window loops or runs out of room: greedy decoding is stuck, so sample."""


async def hear(engine: SpeechEngine, window: Prepared, speech_s: float) -> Heard:
    """One window through the engine, again at a higher temperature when it got stuck.

    `speech_s`: seconds of it in which the survey found speech.

    Of stuck answers the one with the most likely tokens is kept, with the time and the tokens of
    all of them: that is what the window cost. Raises what the engine raises.
    """
    answer = await engine.transcribe(window)
    busy_s, tokens = answer.busy_s, answer.tokens
    for temperature in RETRY_TEMPERATURES:
        if answer.finish == "stop":
            break
        again = await engine.transcribe(window, temperature=temperature)
        busy_s, tokens = busy_s + again.busy_s, tokens + again.tokens
        answer = max((answer, again), key=_trust)
    return replace(answer, busy_s=busy_s, tokens=tokens)


def _trust(heard: Heard) -> tuple[bool, float]:
    return heard.finish == "stop", heard.mean_logprob if heard.mean_logprob is not None else -9.0
