"""The contract of a speech engine: what a worker may ask of it and what it promises.

Two fulfilments: `workers/vllm_engine.py` hears, `workers/echo_engine.py` only takes as long as
hearing would. `tests/contract/` runs one suite on both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from pipeline.recording import known_fields


@dataclass(frozen=True)
class Utterance:
    """Words inside a window; times count from the window's own start, seconds."""

    start_s: float
    end_s: float
    text: str
    mean_logprob: float | None = None
    """Of its own tokens, natural logarithm; None when the engine does not tell."""


@dataclass(frozen=True)
class Heard:
    """What the engine made of one window."""

    utterances: tuple[Utterance, ...]
    language: str
    tokens: int
    """Tokens decoded, special ones included, of all tries: what the work model learns from."""
    mean_logprob: float | None
    """Natural logarithm, averaged over tokens; None when the engine does not tell."""
    finish: Literal["stop", "length", "repetition"]
    """Why decoding ended. Anything but "stop" means the text is cut."""
    busy_s: float
    """Engine seconds this window took: at each moment those in service share the engine evenly, so
    over all windows they add up to the time it was busy. Never the time that passed."""
    no_speech_prob: float | None = None
    """Probability the model gives to nobody speaking, 0..1, at its first token; None: not asked."""
    temperature: float = 0.0
    """At which these words were decoded."""
    doubt: str | None = None
    """Why these words may not have been said (see `transcript/doubts.py`); None: no doubt."""

    @property
    def text(self) -> str:
        """All words of the window, joined by single spaces."""
        return " ".join(u.text.strip() for u in self.utterances if u.text.strip())

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, as saved in Postgres; `from_json` reads them back."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Heard:
        """Read what `to_json` wrote, here or in another release."""
        said = tuple(Utterance(**known_fields(Utterance, u)) for u in raw["utterances"])
        return cls(**{**known_fields(cls, raw), "utterances": said})


@dataclass(frozen=True, eq=False)
class Prepared:
    """A window made ready for an engine, to be heard any number of times."""

    pcm: bytes
    length_s: float
    language: str
    task: str = "transcribe"
    vocabulary: str = ""
    features: Any = None
    """What the engine computed of it; the engine's own affair."""


@dataclass(frozen=True)
class FirstToken:
    """What a model thinks of a window before its first word."""

    language: str
    language_prob: float
    """Among all languages, 0..1."""
    no_speech_prob: float | None
    """Probability that nobody speaks, 0..1; None from a model that had no language to choose and
    was not asked."""


class SpeechEngine(Protocol):
    """Turns windows of speech into words.

    All coroutines run on one event loop. Up to `slots` calls of `transcribe` and `first_token`
    are in flight at once; more are the caller's mistake and only wait inside. `prepare` takes no
    slot: called ahead of time it keeps a slot from waiting for it.
    """

    name: str
    """`vllm` or `echo`; goes into every transcript's provenance."""
    slots: int
    """Windows worth having in flight: the knee of the throughput curve."""

    async def start(self) -> None:
        """Load weights and warm up; may take minutes. Raises `EngineDead` when it cannot,
        `EngineFull` when that is for want of memory: fewer slots may cure it.
        """
        ...

    def fewer_slots(self) -> bool:
        """From the next start on have half of the slots. False when there was only one."""
        ...

    async def prepare(
        self, pcm: bytes, *, language: str, task: str = "transcribe", vocabulary: str = ""
    ) -> Prepared:
        """Make one window ready: `pcm` is mono s16le at 16 kHz, at most 30 s.

        `language` is an ISO 639-1 code, the one that is spoken; `task` one of `job.TASKS`;
        `vocabulary` names and terms likely to be said, of which the model takes as much as fits.
        Raises `LanguageUnknown` when the model knows no such language, else as `transcribe`.
        """
        ...

    async def transcribe(self, window: Prepared, *, temperature: float = 0.0) -> Heard:
        """Hear one window, the more freely the higher the `temperature` (0..1, 0: always the
        likeliest word). Whether the answer is to be believed is for `steps/hear.py` to say.
        Cancelling the call frees its slot.

        Raises `EngineDead` when the engine died under it (run the window again elsewhere; the kind
        says of what), `WindowLate` when this one got no answer within the engine's limit and was
        given up, `WindowRefused` when this window alone cannot be heard.
        """
        ...

    async def first_token(self, pcm: bytes) -> FirstToken:
        """Which language is spoken in a window, and whether anybody speaks at all.

        It is in service like a window, and its share of the engine's time is charged to no window.
        Raises as `transcribe`.
        """
        ...

    def alive(self) -> bool:
        """False once the engine can answer nothing any more."""
        ...

    def provenance(self) -> dict[str, Any]:
        """`model`, `weights_hash`, `engine`, `dtype`: enough to repeat a transcript."""
        ...

    async def stop(self) -> None:
        """Free the device; nothing of the engine is left running. Safe to call twice."""
        ...
