"""A message is believed only as it was signed: whole, with this secret, and not long ago."""

from __future__ import annotations

import base64
import re
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import SignatureRefused
from pipeline.webhooks import PAUSES_S, new_secret, sign, verify

NOW_S = 1_800_000_000
BODY = b'{"id": "1", "type": "job.completed"}'
SECRET = new_secret()


def signed(body: bytes = BODY, secret: str = SECRET, at_s: int = NOW_S) -> dict[str, str]:
    return {
        "Webhook-Id": "d1",
        "Webhook-Timestamp": str(at_s),
        "Webhook-Signature": sign([secret], "d1", at_s, body),
    }


REFUSED: list[tuple[dict[str, str], bytes, int]] = [
    ({}, BODY + b" ", 0),  # changed on the way
    ({"Webhook-Id": "d2"}, BODY, 0),
    ({"Webhook-Timestamp": str(NOW_S + 200)}, BODY, 200),  # an old one, dated anew
    ({}, BODY, 301),  # kept, and sent again
    ({}, BODY, -301),
    ({"Webhook-Signature": ""}, BODY, 0),
    ({"Webhook-Signature": "v1,"}, BODY, 0),
    ({"Webhook-Signature": "é" * 9}, BODY, 0),
    ({"Webhook-Signature": sign([new_secret()], "d1", NOW_S, BODY)}, BODY, 0),
    ({"Webhook-Signature": sign([SECRET], "d1", NOW_S, b"")}, BODY, 0),  # body left out
    ({"Webhook-Timestamp": "9" * 5000}, BODY, 0),
    ({"Webhook-Timestamp": "-1"}, BODY, 0),
    ({"Webhook-Timestamp": "٣"}, BODY, 0),
]


def test_a_message_as_it_was_sent_is_believed_whatever_the_case_of_its_headers() -> None:
    verify(SECRET, signed(), BODY, NOW_S)
    verify(SECRET, {name.upper(): value for name, value in signed().items()}, BODY, NOW_S + 299)


def test_while_a_secret_is_changed_both_are_good() -> None:
    newer = new_secret()
    both = signed() | {"Webhook-Signature": sign([newer, SECRET], "d1", NOW_S, BODY)}
    verify(SECRET, both, BODY, NOW_S)
    verify(newer, both, BODY, NOW_S)


@pytest.mark.parametrize(("change", "body", "later_s"), REFUSED)
def test_anything_else_is_refused(change: dict[str, str], body: bytes, later_s: int) -> None:
    with pytest.raises(SignatureRefused):
        verify(SECRET, signed() | change, body, NOW_S + later_s)


@pytest.mark.parametrize("missing", ["Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"])
def test_a_message_without_one_of_its_headers_is_refused(missing: str) -> None:
    headers = signed()
    del headers[missing]
    with pytest.raises(SignatureRefused, match=missing.lower()):
        verify(SECRET, headers, BODY, NOW_S)


def test_a_secret_is_new_each_time_long_enough_and_fit_for_a_line() -> None:
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    assert all(re.fullmatch(r"whsec_[A-Za-z0-9+/]+=*", secret) for secret in made)
    assert all(len(base64.b64decode(secret[6:])) == 32 for secret in made)
    with pytest.raises(ValueError, match="whsec_"):
        sign(["whsec_ü"], "d1", NOW_S, BODY)


def test_eight_attempts_take_forty_hours() -> None:
    assert len(PAUSES_S) + 1 == 8
    assert sum(PAUSES_S) == pytest.approx(40.2 * 3600, rel=0.01)


# -- what docs/webhooks.md gives to receivers -----------------------------------------------

PAGE = Path(__file__).resolve().parents[2] / "docs" / "webhooks.md"


def shown_verify(monkeypatch: pytest.MonkeyPatch, now_s: float) -> Any:
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    written: dict[str, Any] = {}
    exec(block, written)
    monkeypatch.setattr(time, "time", lambda: now_s)
    return written["verify"]


def test_the_pages_own_verify_believes_what_ours_does(monkeypatch: pytest.MonkeyPatch) -> None:
    lower = {name.lower(): value for name, value in signed().items()}
    shown_verify(monkeypatch, NOW_S)(SECRET, lower, BODY)


@pytest.mark.parametrize(("change", "body", "later_s"), REFUSED)
def test_the_pages_own_verify_refuses_what_ours_does(
    change: dict[str, str], body: bytes, later_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower = {name.lower(): value for name, value in (signed() | change).items()}
    with pytest.raises(ValueError):  # noqa: PT011
        shown_verify(monkeypatch, NOW_S + later_s)(SECRET, lower, body)


def test_the_page_has_the_table_of_attempts() -> None:
    told = re.findall(r"^\| \d \| (\d+) (s|min|h)", PAGE.read_text("utf-8"), re.M)
    seconds = {"s": 1, "min": 60, "h": 3600}
    assert tuple(int(number) * seconds[unit] for number, unit in told) == PAUSES_S
