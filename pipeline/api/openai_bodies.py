"""What OpenAI's endpoints answer, described for /openapi.json."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class Model(BaseModel):
    """A model that can be asked for."""

    id: str = Field(examples=["tiny.en"])
    object: Literal["model"] = "model"
    created: int = Field(default=0, description="Not known here: 0", examples=[0])
    owned_by: str = Field(default="fairscribe", examples=["fairscribe"])


class ModelList(BaseModel):
    """All of them."""

    object: Literal["list"] = "list"
    data: list[Model]


class Transcription(BaseModel):
    """The answer to `response_format=json`."""

    text: str = Field(description="All that was said", examples=["Good morning. Hello."])


class TranscriptionSegment(BaseModel):
    """Words said on one channel, as OpenAI tells them, and who said them."""

    id: int = Field(examples=[0])
    seek: int | None = Field(None, description="Not known: null")
    start: float = Field(description="Seconds", examples=[0.4])
    end: float = Field(description="Seconds", examples=[1.3])
    text: str = Field(examples=["Good morning."])
    tokens: list[int] = Field([], description="Not told: empty", examples=[[]])
    temperature: float | None = Field(None, description="Not known: null")
    avg_logprob: float | None = Field(
        None, description="Natural logarithm of `confidence`", examples=[-0.0726]
    )
    compression_ratio: float = Field(
        description="Bytes of the text over its bytes packed by zlib", examples=[0.619]
    )
    no_speech_prob: float | None = Field(None, description="Not known: null")
    speaker: str | None = Field(None, description="Ours: whose side of the call", examples=["left"])
    channel: int = Field(description="Ours: its number, from 0", examples=[0])
    doubt: str | None = Field(
        None, description="Ours: why these words may not have been said; null: no doubt"
    )


class VerboseTranscription(BaseModel):
    """The answer to `response_format=verbose_json`."""

    task: Literal["transcribe", "translate"] = Field(examples=["transcribe"])
    language: str = Field(description="English name, lower case", examples=["english"])
    duration: float = Field(description="Seconds", examples=[214.6])
    text: str = Field(examples=["Good morning. Hello."])
    segments: list[TranscriptionSegment]


class OpenAIErrorBody(BaseModel):
    """What went wrong, as OpenAI's clients read it."""

    message: str = Field(
        description="One sentence for people",
        examples=["The model 'gpt-4o' is not served here; `tiny.en` is, also as `whisper-1`."],
    )
    type: Literal["invalid_request_error", "server_error"] = Field(
        examples=["invalid_request_error"]
    )
    param: str | None = Field(description="The field at fault, if one is", examples=["model"])
    code: str | None = Field(description="Stable, for programs", examples=["model_not_found"])


class OpenAIError(BaseModel):
    """What every error answers on these paths."""

    error: OpenAIErrorBody
