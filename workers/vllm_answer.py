"""What is read out of vLLM's answer to a window: likelihoods, and whether it is NaN's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.engine import FirstToken
from workers.whisper_tokens import WhisperTokens, prob_of, share_of

if TYPE_CHECKING:
    from vllm.outputs import CompletionOutput, RequestOutput

POISON = 0
"""The token NaN logits decode to ("!")."""
POISON_COUNT = 3
"""So many of it and nothing else: a poisoned engine says it until it is stopped."""

Likely = Mapping[int, float]
"""Token -> natural logarithm of its probability, for the likeliest tokens at one place."""


def token_logprobs(said: CompletionOutput) -> list[float]:
    """The natural logarithm of each said token's probability, before any was forbidden."""
    places: Sequence[Any] = said.logprobs or ()
    return [place[token].logprob for token, place in zip(said.token_ids, places, strict=False)]


def read_first_token(said: CompletionOutput, tokens: WhisperTokens) -> FirstToken | None:
    """An answer to `detection_params`; None when it is NaN's."""
    token, likely = said.token_ids[0], _likely(said.logprobs[0]) if said.logprobs else {}
    if not math.isfinite(likely.get(token, math.nan)):
        return None
    return FirstToken(
        tokens.language_of(token),
        share_of(token, likely, tokens.languages.values()),
        prob_of(tokens.no_speech, likely),
    )


def likely_after(output: RequestOutput, place: int) -> Likely:
    """What was likely after the prompt's token at index `place`; empty when it was not asked.

    The prompt goes on with a forced token there, but the model was asked all the same, so after
    `<|startoftranscript|>` this holds the languages and whether nobody speaks: in the very request
    that transcribes, without a second pass through the encoder.
    """
    places: Sequence[Any] = output.prompt_logprobs or ()
    return _likely(places[place + 1]) if place + 1 < len(places) else {}


def _likely(place: Any) -> Likely:
    return {token: one.logprob for token, one in (place or {}).items()}


def is_poisoned(said: CompletionOutput) -> bool:
    """Whether NaN decoded to this: the engine goes on saying so to windows that are sound."""
    shouted = set(said.token_ids) == {POISON} and len(said.token_ids) >= POISON_COUNT
    return shouted or not math.isfinite(said.cumulative_logprob or 0.0)
