"""Whoever is told that a recording failed is told what to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import (
    FairscribeError,
    JobFailed,
    NotAudio,
    RecordingRefused,
    WindowRefused,
    refusal,
)

API = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text()


def kinds(of: type[FairscribeError]) -> list[type[FairscribeError]]:
    return [of, *(kind for below in of.__subclasses__() for kind in kinds(below))]


ENDS = [*kinds(RecordingRefused), *kinds(JobFailed), WindowRefused]
"""Every error that may end a job."""


@pytest.mark.parametrize("kind", ENDS)
def test_every_reason_a_job_can_fail_for_says_what_to_do_now(kind: type[FairscribeError]) -> None:
    assert kind.advice.endswith(".")
    for error in (kind(), kind("It was too blue."), kind("It was too blue")):
        assert error.message.endswith(f". {kind.advice}")
        assert str(error) == error.message
    assert kind("It was too blue.").message == f"It was too blue. {kind.advice}"


def test_advice_is_given_once_though_a_reason_crosses_processes() -> None:
    first = NotAudio()
    again = refusal(first.code, first.message)
    assert (type(again), again.message) == (NotAudio, first.message)


@pytest.mark.parametrize("kind", [k for k in ENDS if k not in (RecordingRefused, JobFailed)])
def test_the_advice_is_that_of_the_page(kind: type[FairscribeError]) -> None:
    (row,) = (line for line in API.splitlines() if line.startswith(f"| `{kind.code}` | "))
    known = [other.advice for other in ENDS if other.code == kind.code]
    assert any(row.endswith(f" | {advice} |") for advice in known)
