"""The commands about single jobs that came with the whole API: retry, delete, list, get, watch."""

from __future__ import annotations

import sys
import threading
import time
from datetime import UTC, datetime

import pytest

from pipeline.cli import news as news_of_cli
from pipeline.cli import watch as watch_of_cli
from pipeline.cli.job_commands import time_of
from pipeline.errors import BadRequest
from pipeline.parts import Parts
from tests import driven
from tests.integration.conftest import Run


def failed(parts: Parts, name: str = "bad.wav") -> str:
    job_id = driven.received(parts, name, "monday")
    driven.failed(parts, job_id)
    return job_id


def test_failed_jobs_are_tried_again_by_id_or_by_batch(run: Run, parts: Parts) -> None:
    first, second = failed(parts), failed(parts)
    done = driven.received(parts, "done.wav", "monday")
    driven.completed(parts, done)

    assert run("retry", first).out == f"{first}  queued\n"
    assert [job["id"] for job in run("retry", "--batch", "monday", "--json").json["jobs"]] == [
        second
    ]
    assert run("retry", "--batch", "monday").code == 0
    ran = run("retry", done, driven.nobody(), "--json")
    assert ran.code == 1
    codes = [job["error"]["code"] for job in ran.json["jobs"]]
    assert codes == ["not_retryable", "no_such_job"]
    assert len(ran.err.splitlines()) == 2
    assert run("retry").code == 2


def test_cancelled_jobs_of_a_batch_are_tried_again_only_when_asked(run: Run, parts: Parts) -> None:
    job_id = driven.received(parts, "a.wav", "monday")
    run("cancel", job_id)
    assert run("retry", "--batch", "monday", "--json").json["jobs"] == []
    assert len(run("retry", "--batch", "monday", "--cancelled", "--json").json["jobs"]) == 1


def test_delete_asks_on_a_terminal_and_elsewhere_needs_to_be_told(
    run: Run, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (driven.received(parts, f"{n}.wav", "monday") for n in range(3))
    ran = run("delete", first)
    assert ran.code == 2
    assert "say --yes" in ran.err
    shown = run("delete", "--batch", "monday", "--dry-run")
    assert shown.out.splitlines() == [first, second, third, "3 found, 0 erased"]
    assert run("delete", first, "--dry-run", "--json").json["jobs"] == [
        {"id": first, "done": False, "error": None}
    ]
    assert run("delete", first, "unknown", "--dry-run").code != 0
    answers = iter(["n\n", "y\n"])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdin, "readline", lambda *_: next(answers), raising=False)
    monkeypatch.setattr("builtins.input", lambda *_: next(answers).strip())
    assert run("delete", first).code != 0
    assert len(run("list", "--json").json["jobs"]) == 3
    assert run("delete", first).code == 0
    assert [job["id"] for job in run("list", "--json").json["jobs"]] == [second, third]
    assert run("delete", "--batch", "monday", "--yes", "--json").code == 0
    assert run("list", "--json").json["jobs"] == []
    assert run("delete", first, "--yes").code == 1
    assert run("delete").code == 2


def test_list_has_the_newest_first_or_only_the_new(run: Run, parts: Parts) -> None:
    made = [driven.received(parts, f"{n}.wav") for n in range(3)]
    assert [
        job["id"] for job in run("list", "--newest", "--limit", "2", "--json").json["jobs"]
    ] == made[:0:-1]
    assert len(run("list", "--since", "1h", "--json").json["jobs"]) == 3
    assert run("list", "--since", "2999-01-01", "--json").json["jobs"] == []
    assert run("list", "--since", "yesterday").code == 2


@pytest.mark.parametrize("text", ["", "x", "-1h", "1w", "2026-13-01", "9" * 30 + "d", "d", "²h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        time_of(text)


def test_a_time_is_told_with_its_offset() -> None:
    assert datetime.fromisoformat(time_of("2026-03-02T09:00+02:00")) == datetime(
        2026, 3, 2, 7, tzinfo=UTC
    )
    assert datetime.fromisoformat(time_of("2026-03-02")).tzinfo is not None
    assert (
        abs(
            datetime.now(UTC).timestamp()
            - 5400
            - datetime.fromisoformat(time_of("90m")).timestamp()
        )
        < 5
    )


def test_get_prints_what_is_heard_so_far(run: Run, parts: Parts) -> None:
    job_id = driven.received(parts)
    driven.running(parts, job_id)
    assert "There is no transcript" in run("get", job_id).err
    assert "Nothing is heard yet" in run("get", job_id, "--partial").err
    done = driven.received(parts)
    driven.completed(parts, done)
    assert run("get", done, "--partial").out == "left: Grüße!\nright: Hello 🙂.\n"


def test_watch_hears_of_an_end_by_the_events_of_its_batch(
    run: Run, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    # only an event, or the clock after an hour, makes it look a second time
    monkeypatch.setattr(news_of_cli, "AT_LEAST_S", 3600.0)
    job_id = driven.received(parts, "late.wav", "monday")
    ended: list[float] = []

    def end() -> None:
        driven.completed(parts, job_id)
        ended.append(time.monotonic())

    worker = threading.Timer(2.5, end)
    worker.start()
    ran = run("watch", "monday", "--json")
    worker.join()
    assert (ran.code, len(ran.json["jobs"])) == (0, 1)
    assert time.monotonic() - ended[0] < 4


def test_watch_does_not_wait_for_a_job_that_was_erased(
    run: Run, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(news_of_cli, "AT_LEAST_S", 0.5)
    for singly in (0, 20):
        monkeypatch.setattr(watch_of_cli, "SINGLY", singly)
        kept, erased = (driven.received(parts, name, "monday") for name in ("a.wav", "b.wav"))
        driven.completed(parts, kept)
        worker = threading.Timer(0.5, run_delete, (parts, erased))
        worker.start()
        ran = run("watch", "monday", "--json")
        worker.join()
        # erasing cancels first: a look between the two sees the job end as cancelled
        assert ran.code == 0 or ran.err == "cancelled  b.wav\n", ran.err


def run_delete(parts: Parts, job_id: str) -> None:
    from pipeline.steps.erase import erase

    erase(parts.store, parts.storage, parts.queues, job_id)
