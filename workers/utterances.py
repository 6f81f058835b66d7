"""Read Whisper's token stream: words between timestamp tokens become utterances."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipeline.engine import Utterance

TIMESTAMP_STEP_S = 0.02
"""One timestamp token is this much later than the one before it."""


def read_utterances(
    tokens: Sequence[int],
    *,
    end_of_text: int,
    first_timestamp: int,
    length_s: float,
    decode: Callable[[list[int]], str],
    logprobs: Sequence[float] = (),
) -> tuple[Utterance, ...]:
    """Utterances of a window of `length_s` seconds, in order, none before the one it follows.

    `tokens` is what the decoder said after a forced `<|0.00|>`. Ids below `end_of_text` are text
    and go to `decode`; ids from `first_timestamp` are times; the others mean nothing here. Times
    are kept inside the window and never run backwards, for nothing makes Whisper's do so. Words
    after the last time end where the window ends. No word is dropped for an odd time: such an
    utterance has no length.

    `logprobs` are the tokens' own, natural logarithms; an utterance gets the mean over its words'
    tokens. Times are left out of it: the model is sure of words whose end it does not know, and
    the other way round. Without them no utterance tells.

    >>> words = {0: " Good", 1: " day."}
    >>> read_utterances([0, 1, 150, 9], end_of_text=9, first_timestamp=100, length_s=2.0,
    ...                 decode=lambda ids: "".join(words[i] for i in ids))
    (Utterance(start_s=0.0, end_s=1.0, text='Good day.', mean_logprob=None),)
    """
    utterances: list[Utterance] = []
    start_s = 0.0
    words: list[int] = []
    sure: list[float] = []

    def close(end_s: float) -> None:
        text = decode(words).strip() if words else ""
        if text:
            mean = sum(sure) / len(sure) if sure else None
            utterances.append(Utterance(start_s, end_s, text, mean))
        words.clear()
        sure.clear()

    for at, token in enumerate(tokens):
        if token < end_of_text:
            words.append(token)
            sure.extend(logprobs[at : at + 1])
        elif token >= first_timestamp:
            at_s = round((token - first_timestamp) * TIMESTAMP_STEP_S, 2)
            at_s = max(start_s, min(at_s, length_s))
            close(at_s)
            start_s = at_s
    close(length_s)
    return tuple(utterances)
