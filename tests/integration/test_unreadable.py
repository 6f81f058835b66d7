"""One stored file that cannot be read keeps nobody; storage that answers nobody keeps everybody."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from pipeline.job import JobView, State
from pipeline.parts import Parts
from pipeline.store import views
from pipeline.store.session import transaction
from tests.lines import eventually, pulling, states, surveyed_job
from workers import unreadable
from workers.echo_engine import EchoEngine


def view(parts: Parts, job_id: str) -> JobView:
    with transaction(parts.store) as c:
        found = views.view(c, job_id)
    assert found is not None
    return found


@contextmanager
def refused(place: Path) -> Iterator[None]:
    """What is there can be opened by nobody, not even by root."""
    kept = place.with_name(place.name + ".kept")
    place.rename(kept)
    place.symlink_to(place.name)  # leads to itself
    try:
        yield
    finally:
        place.unlink()
        kept.rename(place)


def packed(parts: Parts, job_id: str = "") -> Path:
    folder = parts.settings.home / "storage" / "packed"
    return folder / f"{job_id}-1" if job_id else folder


def quick() -> EchoEngine:
    return EchoEngine(slots=2, fixed_s=0.02, per_second_s=0.0)


def completed(parts: Parts) -> int:
    return states(parts).get(State.COMPLETED, 0)


def test_a_file_that_cannot_be_read_holds_back_no_other_job_and_goes_on_when_it_can(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreadable, "LONGEST_PAUSE_S", 1.5)
    bad = surveyed_job(parts, windows=3)
    stack = ExitStack()
    stack.enter_context(refused(packed(parts, bad)))
    with pulling(parts, quick()):
        with stack:
            eventually(lambda: view(parts, bad).state is State.RUNNING)
            for _ in range(100):
                surveyed_job(parts)
            # if they were claimed only when it is tried again, that would take half a minute
            eventually(lambda: completed(parts) == 100, 10)
            assert view(parts, bad).state is State.RUNNING
        eventually(lambda: completed(parts) == 101, 20)
    assert view(parts, bad).attempts == 1


def test_a_file_that_cannot_be_read_for_long_fails_its_job_while_others_are_heard(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreadable, "LIMIT_S", 1.0)
    bad = surveyed_job(parts)
    with refused(packed(parts, bad)), pulling(parts, quick()):
        eventually(lambda: view(parts, bad).state is State.RUNNING)
        surveyed_job(parts)
        eventually(lambda: view(parts, bad).state is State.FAILED)
    assert view(parts, bad).error_code == "recording_unreadable"
    assert completed(parts) == 1


def test_with_nobody_else_to_compare_it_is_given_back_and_never_failed(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreadable, "LIMIT_S", 0.5)
    bad = surveyed_job(parts)
    with refused(packed(parts, bad)), pulling(parts, quick()):
        eventually(lambda: view(parts, bad).attempts >= 2)
    assert view(parts, bad).state is not State.FAILED


def test_storage_that_answers_nobody_fails_no_job_and_none_is_claimed_meanwhile(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreadable, "LIMIT_S", 0.5)
    for _ in range(40):
        surveyed_job(parts)
    stack = ExitStack()
    stack.enter_context(refused(packed(parts)))
    with pulling(parts, quick()):
        with stack:
            eventually(lambda: states(parts).get(State.RUNNING, 0) > 0)
            time.sleep(3)
            assert states(parts).get(State.FAILED, 0) == 0
            assert states(parts)[State.SURVEYED] > 30
        eventually(lambda: completed(parts) == 40, 30)


def test_of_many_files_that_cannot_be_read_only_a_few_are_taken_in_hand(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreadable, "LONGEST_PAUSE_S", 1.5)
    stack = ExitStack()
    for job_id in [surveyed_job(parts) for _ in range(40)]:
        stack.enter_context(refused(packed(parts, job_id)))
    with pulling(parts, quick()):
        with stack:
            eventually(lambda: states(parts).get(State.RUNNING, 0) > unreadable.AT_MOST)
            time.sleep(2)
            assert states(parts)[State.RUNNING] <= unreadable.AT_MOST + 4
        eventually(lambda: completed(parts) == 40, 30)
