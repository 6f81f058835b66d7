"""The ids of Whisper's own tokens in one model, and what is said with them to the decoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.errors import EngineDead, WindowRefused

if TYPE_CHECKING:
    from vllm import SamplingParams

NEVER = -100.0
"""Added to a token's logit to forbid it. vLLM ignores generation_config's lists."""


@dataclass(frozen=True)
class WhisperTokens:
    """Read from a model's configuration, for they differ between Whisper's versions."""

    start: int
    """`<|startoftranscript|>`"""
    end: int
    """`<|endoftext|>`; every lower id is text."""
    first_timestamp: int
    """`<|0.00|>`; each next id is 0.02 s later."""
    transcribe: int | None
    """`<|transcribe|>`; None in a model that hears English only."""
    languages: Mapping[str, int]
    """ISO 639-1 code -> token; empty in a model that hears English only."""
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
                transcribe=int(generation["task_to_id"]["transcribe"]) if languages else None,
                languages=languages,
                suppressed=frozenset(generation.get("suppress_tokens") or ()) | {no_timestamps},
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise EngineDead(f"The model is not a Whisper model: {error!r}.") from error

    def prompt(self, language: str) -> list[int]:
        """What the decoder is made to say first; it ends in `<|0.00|>`.

        With a forced first time none of 21 windows ended early; without it, four did.
        `language` is an ISO 639-1 code; raises `WindowRefused` when the model does not know it.
        """
        if not self.languages or self.transcribe is None:
            if language != "en":
                raise WindowRefused(f"This model hears English only, not {language!r}.")
            return [self.start, self.first_timestamp]
        if language not in self.languages:
            raise WindowRefused(f"This model does not know the language {language!r}.")
        return [self.start, self.languages[language], self.transcribe, self.first_timestamp]

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
        # Of 21 windows with a forced time 5 looped; this ended them all, with the best WER.
        repetition_detection=RepetitionDetectionParams(
            max_pattern_size=40, min_pattern_size=1, min_count=3
        ),
        logprobs=0,
        detokenize=False,  # a packaged tokenizer lacks the timestamps; text is decoded by us
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
