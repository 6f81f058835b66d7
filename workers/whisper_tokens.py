"""The ids of Whisper's own tokens in one model, and what is said with them to the decoder."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.errors import EngineDead, LanguageUnknown
from pipeline.job import TASKS
from pipeline.transcript.repeats import RUN_LIMIT

if TYPE_CHECKING:
    from vllm import SamplingParams

NEVER = -100.0
"""Added to a token's logit to forbid it. vLLM ignores generation_config's lists."""


PREVIOUS_LIMIT = 223
"""Tokens of text before the window: half of what the decoder sees, less `<|startofprev|>`. The
other half is room for the words of the window."""

LOOP_COUNT = RUN_LIMIT
"""So often in a row a phrase of at most 40 tokens ends an answer: what is said more often is not
believed anyway. Ended at 3, "No, no, no, no, no. That is not my account." was never heard to its
end, at no temperature, and "zero zero zero one" lost its rest."""

LIKELIEST = 20
"""Likeliest tokens looked at for a language and for silence, vLLM's own limit: beyond them nothing
adds up to anything."""


@dataclass(frozen=True)
class WhisperTokens:
    """Read from a model's configuration, for they differ between Whisper's versions."""

    start: int
    """`<|startoftranscript|>`"""
    end: int
    """`<|endoftext|>`; every lower id is text."""
    first_timestamp: int
    """`<|0.00|>`; each next id is 0.02 s later."""
    tasks: Mapping[str, int]
    """`transcribe` and `translate` -> token; empty in a model that hears English only."""
    languages: Mapping[str, int]
    """ISO 639-1 code -> token; empty in a model that hears English only."""
    previous: int
    """`<|startofprev|>`: what follows it was said before the window."""
    no_speech: int
    """`<|nospeech|>`, `<|nocaptions|>` in older models: nobody speaks."""
    suppressed: frozenset[int]
    """Never to be said: brackets, music notes, and that times are not wanted."""

    @classmethod
    def from_configs(cls, config: Any, generation: Mapping[str, Any]) -> WhisperTokens:
        """Read a model's config (an object) and generation config (a mapping).

        Raises `EngineDead` when they are not Whisper's: nothing could be asked of such a model.
        """
        try:
            no_timestamps = int(generation["no_timestamps_token_id"])
            languages = {
                token.strip("<|>"): int(i) for token, i in generation.get("lang_to_id", {}).items()
            }
            return cls(
                start=int(config.decoder_start_token_id),
                end=int(config.eos_token_id),
                first_timestamp=no_timestamps + 1,
                tasks={t: int(generation["task_to_id"][t]) for t in TASKS} if languages else {},
                languages=languages,
                # The same order in every Whisper: previous, no speech, no timestamps, <|0.00|>.
                previous=no_timestamps - 2,
                no_speech=no_timestamps - 1,
                suppressed=frozenset(generation.get("suppress_tokens") or ()) | {no_timestamps},
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise EngineDead(f"The model is not a Whisper model: {error!r}.") from error

    def prompt(
        self, language: str, task: str = "transcribe", previous: Sequence[int] = ()
    ) -> list[int]:
        """What the decoder is made to say first; it ends in `<|0.00|>`.

        `previous`: text tokens it is to take for what was said before. Of many the last
        `PREVIOUS_LIMIT` are taken, as Whisper does it and OpenAI documents it. Tokens that are no
        text are left out: a vocabulary that spells `<|startoftranscript|>` starts nothing.

        With a forced first time none of 21 windows ended early; without it, four did. `language`
        is an ISO 639-1 code; raises `LanguageUnknown` when the model does not know it. In a model
        that hears English only every `task` is the same: its words are in English already.
        """
        text = [token for token in previous if token < self.end][-PREVIOUS_LIMIT:]
        before = [self.previous, *text] if text else []
        if not self.languages:
            if language != "en":
                raise LanguageUnknown(f"This model hears English only, not {language!r}.")
            return [*before, self.start, self.first_timestamp]
        if language not in self.languages:
            raise LanguageUnknown(f"This model does not know the language {language!r}.")
        asked = [self.start, self.languages[language], self.tasks[task], self.first_timestamp]
        return [*before, *asked]

    def language_of(self, token: int) -> str:
        """The language a token stands for. Raises `KeyError` for any other token."""
        return {i: code for code, i in self.languages.items()}[token]

    def logit_bias(self) -> dict[int, float]:
        """The suppressed tokens as vLLM's sampling takes them."""
        return dict.fromkeys(sorted(self.suppressed), NEVER)


def sampling_params(
    tokens: WhisperTokens, *, temperature: float, max_tokens: int
) -> SamplingParams:
    """How vLLM is to decode one window: at most `max_tokens` tokens, ended early in a loop."""
    from vllm import SamplingParams
    from vllm.sampling_params import RepetitionDetectionParams, RequestOutputKind

    return SamplingParams(
        temperature=temperature,
        # A fixed seed: the same window at the same temperature gives the same words.
        seed=0 if temperature > 0 else None,
        max_tokens=max_tokens,
        logit_bias=tokens.logit_bias(),
        repetition_detection=RepetitionDetectionParams(
            max_pattern_size=40, min_pattern_size=1, min_count=LOOP_COUNT
        ),
        logprobs=0,
        prompt_logprobs=LIKELIEST,  # where the prompt starts: languages, and whether nobody speaks
        detokenize=False,  # a packaged tokenizer lacks the timestamps; text is decoded by us
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def detection_params(tokens: WhisperTokens) -> SamplingParams:
    """How vLLM is to say the language of a window: one token, one of the languages."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=0.0,
        max_tokens=1,
        allowed_token_ids=sorted(tokens.languages.values()),
        logprobs=LIKELIEST,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def share_of(token: int, logprobs: Mapping[int, float], languages: Collection[int]) -> float:
    """Probability of a language's `token` among all `languages`, from the likeliest tokens'
    natural `logprobs`, which vLLM takes before it forbids what is no language.

    >>> round(share_of(1, {1: -1.0, 2: -2.0, 9: -0.1}, {1, 2, 3}), 3)      # e^-1 / (e^-1 + e^-2)
    0.731
    """
    weights = {i: math.exp(logprob) for i, logprob in logprobs.items() if i in languages}
    return weights.get(token, 0.0) / (sum(weights.values()) or 1.0)


def prob_of(token: int, logprobs: Mapping[int, float]) -> float:
    """Probability of `token` among all tokens, from the likeliest tokens' natural `logprobs`; 0 for
    one that is not among them.

    >>> prob_of(1, {1: 0.0, 2: -9.0}), prob_of(3, {1: 0.0, 2: -9.0})
    (1.0, 0.0)
    """
    return math.exp(logprobs[token]) if token in logprobs else 0.0
