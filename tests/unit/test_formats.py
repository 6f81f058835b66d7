"""A transcript's document in the formats people ask for."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.transcript.formats import to_txt


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
    ],
)
def test_text_has_a_line_a_segment_with_its_speaker_where_sides_are_known(
    segments: list[dict[str, Any]], text: str
) -> None:
    assert to_txt({"segments": segments}) == text


def test_text_keeps_the_order_of_the_document() -> None:
    body = {"segments": [said(str(n), start_s=-n) for n in range(5)]}
    assert to_txt(body).split() == ["0", "1", "2", "3", "4"]
