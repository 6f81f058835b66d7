"""A transcript's document in the formats people ask for; subtitles have a file of their own."""

from __future__ import annotations

import json
import math
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.recording import Segment, Transcript
from pipeline.transcript.formats import FORMATS, to_txt
from pipeline.transcript.languages import LANGUAGES, name_of
from pipeline.transcript.openai_json import avg_logprob, to_openai_json, to_verbose_json


def said(text: str, speaker: str | None = None, **more: Any) -> dict[str, Any]:
    return {"text": text, "speaker": speaker, **more}


@pytest.mark.parametrize(
    ("segments", "text"),
    [
        pytest.param([], "", id="nobody speaks"),
        pytest.param([said("Hello.")], "Hello.\n", id="mono names nobody"),
        pytest.param(
            [said("Hello.", "left"), said("Hi!", "right"), said("Yes?", "left")],
            "left: Hello.\nright: Hi!\nleft: Yes?\n",
            id="two speakers take turns",
        ),
        pytest.param(
            [said("Grüße 🙂", "agent"), said("你好", "customer")],
            "agent: Grüße 🙂\ncustomer: 你好\n",
            id="any script",
        ),
        pytest.param([said("a: b", None)], "a: b\n", id="a colon that was said"),
        pytest.param(
            [said("Thank you.", "agent", doubt="words repeat"), said(" ", doubt="words repeat")],
            "agent: [?] Thank you.\n",
            id="words in doubt have a mark",
        ),
    ],
)
def test_text_has_a_line_a_segment_with_its_speaker_where_sides_are_known(
    segments: list[dict[str, Any]], text: str
) -> None:
    assert to_txt({"segments": segments}) == text


def test_text_keeps_the_order_of_the_document() -> None:
    body = {"segments": [said(str(n), start_s=-n) for n in range(5)]}
    assert to_txt(body).split() == ["0", "1", "2", "3", "4"]


def document(*segments: Segment, language: str = "en", **options: str) -> dict[str, Any]:
    """A transcript as it is kept."""
    text = " ".join(segment.text for segment in segments)
    provenance = {"model": "tiny.en", "options": options}
    return Transcript("id", text, language, 4.0, segments, provenance=provenance).to_json()


CALL = document(
    Segment(0.5, 1.5, 0, "left", "Grüße!", 0.9), Segment(1.5, 3.5, 1, "right", "Hello 🙂.", None)
)


def test_verbose_json_has_openais_keys_and_null_for_what_nobody_told() -> None:
    verbose = to_verbose_json(CALL)
    assert {k: v for k, v in verbose.items() if k != "segments"} == {
        "task": "transcribe",
        "language": "english",
        "duration": 4.0,
        "text": "Grüße! Hello 🙂.",
    }
    first, second = verbose["segments"]
    assert first == {
        "id": 0,
        "seek": None,
        "start": 0.5,
        "end": 1.5,
        "text": "Grüße!",
        "tokens": [],
        "temperature": None,
        "avg_logprob": -0.1054,
        "compression_ratio": round(8 / len(zlib.compress("Grüße!".encode())), 4),
        "no_speech_prob": None,
        "speaker": "left",
        "channel": 0,
        "doubt": None,
    }
    assert (second["id"], second["avg_logprob"], second["speaker"]) == (1, None, "right")


@pytest.mark.parametrize(
    ("language", "options", "told"),
    [
        ("de", {}, ("transcribe", "german")),
        ("yue", {"task": "transcribe"}, ("transcribe", "cantonese")),
        ("de", {"task": "translate"}, ("translate", "english")),
        ("xx", {}, ("transcribe", "xx")),
    ],
)
def test_verbose_json_tells_the_task_and_the_language_of_the_words(
    language: str, options: dict[str, str], told: tuple[str, str]
) -> None:
    verbose = to_verbose_json(document(language=language, **options))
    assert (verbose["task"], verbose["language"]) == told


@given(st.floats(0, 1))
def test_a_log_probability_is_the_logarithm_of_the_confidence_or_not_known(share: float) -> None:
    told = avg_logprob(share)
    if told is None:
        assert share == 0
    else:
        assert math.exp(told) == pytest.approx(share, abs=1e-4)


@given(st.lists(st.tuples(st.text(), st.none() | st.floats(0, 1), st.none() | st.text())))
def test_any_text_makes_a_file_of_every_format(said: list[tuple[str, Any, Any]]) -> None:
    body = document(
        *(Segment(n, n + 1.0, 0, who, text, p) for n, (text, p, who) in enumerate(said))
    )
    for known in FORMATS.values():
        file = known.write(body)
        file.encode("utf-8")
        assert file.endswith(("\n", "}")) or not file
    written = json.loads(FORMATS["json"].write(body))
    assert written == {**body, "segments": [*body["segments"]], "channels": [*body["channels"]]}
    verbose = json.loads(FORMATS["verbose_json"].write(body))
    assert [s["text"] for s in verbose["segments"]] == [s["text"] for s in body["segments"]]
    assert to_openai_json(body) == {"text": body["text"]}
    assert FORMATS["txt"].write(body).count("\n") <= len(said)


SEGMENTS = st.builds(
    Segment,
    st.floats(0, 1e5),
    st.floats(0, 1e5),
    st.integers(0, 7),
    st.none() | st.text(max_size=50),
    st.text(max_size=100),
    st.none() | st.floats(0, 1),
    st.none() | st.sampled_from(["words repeat", "perhaps nobody speaks"]),
)


@given(st.lists(SEGMENTS, max_size=6))
def test_the_same_transcript_is_the_same_file_to_the_byte(segments: list[Segment]) -> None:
    body = document(*segments)
    # as Postgres gives it back: its keys in another order
    kept = json.loads(json.dumps(dict(reversed(body.items()))))
    for name in ("srt", "vtt", "txt", "verbose_json"):
        written = {FORMATS[name].write(same) for same in (body, dict(body), kept)}
        assert len(written) == 1


def test_the_languages_are_those_of_whisper_in_its_order() -> None:
    whisper = pytest.importorskip("transformers.models.whisper.tokenization_whisper")
    assert list(LANGUAGES.items()) == list(whisper.LANGUAGES.items())
    assert name_of("ja") == "japanese"
