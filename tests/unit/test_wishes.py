"""What senders wish and say of a recording: read strictly, refused by its name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from pipeline.errors import BadRequest
from pipeline.wishes import (
    WAIT_BUDGET_LIMIT_S,
    read_deadline,
    read_duration_hint_s,
    read_wait_budget_s,
)

SECONDS = [read_wait_budget_s, read_duration_hint_s]


@pytest.mark.parametrize("read", [read_deadline, *SECONDS])
def test_who_says_nothing_has_none(read: Callable[[Any], Any]) -> None:
    assert read(None) is None
    assert read("") is None


@pytest.mark.parametrize(
    ("said", "utc"),
    [
        ("2026-03-02T12:00:00+01:00", datetime(2026, 3, 2, 11, tzinfo=UTC)),
        ("2999-12-31T23:59:59-12:00", datetime(3000, 1, 1, 11, 59, 59, tzinfo=UTC)),
    ],
)
def test_a_deadline_is_a_moment_in_utc(said: str, utc: datetime) -> None:
    assert read_deadline(said) == utc


def test_a_time_without_offset_is_read_only_where_this_machine_s_is_meant() -> None:
    local = datetime(2026, 3, 2, 12).astimezone(UTC)
    assert read_deadline("2026-03-02T12:00", local=True) == local
    with pytest.raises(BadRequest, match="with its offset"):
        read_deadline("2026-03-02T12:00")


@pytest.mark.parametrize(
    "odd", ["soon", "2026-13-01", "12:00+01:00", "0001-01-01T00Z", 3600, [1], True]
)
def test_what_is_no_deadline_is_refused(odd: Any) -> None:
    with pytest.raises(BadRequest, match=r"^deadline is"):
        read_deadline(odd)


@pytest.mark.parametrize("read", SECONDS)
@pytest.mark.parametrize("said", ["90.5", 90.5])
def test_seconds_come_as_text_or_number(read: Callable[[Any], float | None], said: Any) -> None:
    assert read(said) == 90.5


@pytest.mark.parametrize("read", SECONDS)
@pytest.mark.parametrize(
    "odd", ["0", "-1", "nan", "inf", "ten", "0x10", "1:30", True, 10**400, [1]]
)
def test_what_is_no_number_of_seconds_is_refused(read: Callable[[Any], Any], odd: Any) -> None:
    name = "wait_budget_s" if read is read_wait_budget_s else "duration_hint_s"
    with pytest.raises(BadRequest, match=rf"^{name} is a number of seconds above 0"):
        read(odd)


def test_seconds_have_a_limit() -> None:
    assert read_wait_budget_s(WAIT_BUDGET_LIMIT_S) == WAIT_BUDGET_LIMIT_S
    with pytest.raises(BadRequest, match="at most"):
        read_wait_budget_s(WAIT_BUDGET_LIMIT_S + 1)
    assert read_duration_hint_s(60, 60.0) == 60
    with pytest.raises(BadRequest, match="at most 60"):
        read_duration_hint_s(61, 60.0)
