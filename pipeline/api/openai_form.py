"""What a caller in OpenAI's form asks for: its fields read and checked.

Fields OpenAI's API has and we do not use are accepted and do nothing, so that a program written for
it runs; a field it does not have is refused by form.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from pipeline.api.form_reader import File, Form
from pipeline.api.openai_errors import BadParameter, ModelNotFound
from pipeline.job import AUTO
from pipeline.settings import Settings
from pipeline.transcript.languages import LANGUAGES
from pipeline.vocabulary import as_vocabulary

WHISPER_1 = "whisper-1"
"""What OpenAI calls its own Whisper: whoever asks for it gets the model that is served."""

ResponseFormat = Literal["json", "text", "srt", "verbose_json", "vtt"]

GRANULARITIES = ("timestamp_granularities[]", "timestamp_granularities")
"""Sent with brackets by OpenAI's clients, without by some others."""

FIELDS = {
    "model": f"The name of the model that is served, or `{WHISPER_1}`, which stands for it",
    "language": "Code such as `en`, or `auto`: hear it out; absent: the installation's default, "
    "for a translation `auto`",
    "response_format": "Form of the answer",
    "timestamp_granularities[]": "Only `segment`: nobody knows word times",
    "prompt": "Names and terms likely to be said; of a long one the last 1,000 characters",
    "temperature": "0 to 1; accepted, not used yet: each window is heard at 0, and again at more "
    "when it got stuck",
    "stream": "Accepted and ignored, as OpenAI does for whisper-1",
}
"""The fields that mean something here."""

IGNORED = (
    *("chunking_strategy", "chunking_strategy[type]", "chunking_strategy[threshold]"),
    *("chunking_strategy[prefix_padding_ms]", "chunking_strategy[silence_duration_ms]"),
    *("include", "include[]", "keywords", "keywords[]", "languages", "languages[]"),
    *("known_speaker_names", "known_speaker_names[]"),
    *("known_speaker_references", "known_speaker_references[]"),
)
"""Fields of OpenAI's other models, as its clients spell them."""

ALL_FIELDS = tuple(name for name in (*FIELDS, *IGNORED) if name not in GRANULARITIES)
"""Fields that come once; those that may come more often are `GRANULARITIES`."""


@dataclass(frozen=True)
class Asked:
    """A request that can be carried out."""

    file: File
    response_format: ResponseFormat
    language: str | None
    """None: the installation's default."""
    vocabulary: str
    """Names and terms likely to be said; empty: none."""


def read_asked(form: Form, settings: Settings) -> Asked:
    """Check what the form says.

    Raises `BadParameter`, which names the field at fault, and `ModelNotFound`.
    """
    if len(form.files) != 1:
        raise BadParameter("Send one recording, in a part named `file`.", "file")
    if not form.fields.get("model"):
        raise BadParameter(f"Say which model: `{model_name(settings)}`, or `{WHISPER_1}`.", "model")
    check_model(form.fields["model"], settings)
    _check_granularities(form)
    _check_temperature(form.fields.get("temperature") or "0")
    vocabulary = as_vocabulary(form.fields.get("prompt") or "")
    return Asked(form.files[0], _response_format(form), _language(form), vocabulary)


def model_name(settings: Settings) -> str:
    """The public name of the model in use: of a folder its last part, never its place."""
    folder = Path(settings.model).expanduser()
    return folder.name if folder.is_dir() else settings.model


def check_model(name: str, settings: Settings) -> None:
    """Raise `ModelNotFound` unless `name` is, or stands for, the model in use."""
    served = model_name(settings)
    if name not in (served, WHISPER_1):
        raise ModelNotFound(
            f"The model {name[:100]!r} is not served here; `{served}` is, also as `{WHISPER_1}`."
        )


def _response_format(form: Form) -> ResponseFormat:
    asked = form.fields.get("response_format") or "json"
    for known in get_args(ResponseFormat):
        if asked == known:
            return known  # type: ignore[no-any-return]
    known_ones = ", ".join(get_args(ResponseFormat))
    raise BadParameter(
        f"response_format is one of {known_ones}, not {asked[:100]!r}.", "response_format"
    )


def _language(form: Form) -> str | None:
    asked = form.fields.get("language") or None
    if asked is None or asked == AUTO or asked in LANGUAGES:
        return asked
    raise BadParameter(
        f"language is a code that Whisper knows, such as en, not {asked[:100]!r}.", "language"
    )


def _check_granularities(form: Form) -> None:
    asked = [value for name in GRANULARITIES for value in form.repeated[name]]
    if "word" in asked:
        raise BadParameter(
            "There are no word times: Whisper as it is run here times segments, and word times "
            "would be made up. Ask for `segment`.",
            GRANULARITIES[0],
        )
    if any(value != "segment" for value in asked):
        raise BadParameter("timestamp_granularities[] may only be `segment`.", GRANULARITIES[0])


def _check_temperature(text: str) -> None:
    try:
        temperature = float(text)
    except ValueError:
        temperature = math.nan
    if not 0 <= temperature <= 1:
        raise BadParameter(
            f"temperature is a number from 0 to 1, not {text[:100]!r}.", "temperature"
        )
