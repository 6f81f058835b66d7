"""What people reported other queues and workers to get wrong: what ours do with the same.

One row a report, named by the thread it comes from; the first part of the list is
`test_reports.py`. A row runs a story of `tests/reports/queue_stories.py`, or names the test that
makes the report. What cannot be made here stands in `NOT_HERE` with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.api_door import api, open_api, served  # noqa: F401
from tests.reports import queue_stories as stories
from tests.reports.checks import Here

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Report:
    """A public report, and what we do."""

    number: int
    where: str
    we: str
    """What we do, in words."""
    check: Callable[[Here], None] | None = None
    test: str = ""
    """Else the test that makes the report: file under tests/, and name."""


REPORTS = (
    Report(59, "celery#5935", "a transcription is no Celery message: its lease is renewed while it "
           "moves, however long it takes", stories.a_job_longer_than_its_lease_runs_once),
    Report(60, "open-chat-studio#4084", "no lease that goes by makes a copy",
           stories.a_job_longer_than_its_lease_runs_once),
    Report(61, "openhumansimputer#38", "what is held and not begun has its lease renewed too",
           stories.what_is_only_held_runs_once),
    Report(62, "celery#10205", "workers go on within a minute of a Redis that came back",
           stories.redis_comes_back_empty_under_load),
    Report(63, "celery#1789", "the queue is made anew from Postgres",
           stories.redis_comes_back_empty_under_load),
    Report(64, "celery#7462", "a task's process that dies costs its message, and the sweeper sends "
           "another", test="integration/test_crash_points.py::"
           "test_what_a_crash_leaves_comes_right_within_a_lease_and_two_seconds"),
    Report(65, "celery#4537", "a worker takes what it has a slot for",
           stories.short_ones_wait_behind_no_long_one),
    Report(66, "celery#4028", "0 is the highest: what goes behind is read last, and counted",
           stories.few_go_first_and_zero_is_the_highest_priority),
    Report(67, "celery#8888", "a cancel is a row in Postgres, which no worker forgets",
           stories.a_cancel_with_no_worker_up_holds),
    Report(68, "celery#1007", "what is held is let go of within half a second",
           stories.a_job_that_is_only_held_can_be_cancelled),
    Report(70, "Scriberr#304", "a job of a dead worker can be cancelled, tried again, deleted",
           stories.a_job_of_a_dead_worker_obeys),
    Report(71, "Scriberr#466", "streams cost no thread, and everything else still answers",
           stories.thirty_files_and_ten_streams),
    Report(72, "vibe#1405", "an engine is given as much as it has slots",
           stories.fifty_files_and_one_slot),
    Report(74, "subgen#310", "a request that is made ten times at once with one key makes each job "
           "once", test="integration/test_api_submissions.py::test_ten_at_once_make_each_job_once"),
    Report(75, "tinycortex#139", "each failed job is tried again by itself",
           stories.failed_twins_are_both_tried_again),
    Report(76, "whisper.cpp#3358", "the twentieth is heard like the first",
           stories.the_twentieth_is_heard_like_the_first),
    Report(76, "gnome-speech2text#6", "an engine that hears nothing any more is found by a second "
           "of known words, and started anew", test="integration/test_engine_survived.py::"
           "test_an_idle_engine_is_asked_now_and_then_and_started_anew_when_it_hears_nothing"),
    Report(77, "vllm#52926", "a window has a deadline; a recording that hangs engines alone fails",
           test="integration/test_engine_survived.py::"
           "test_a_window_without_an_answer_is_given_up_and_all_others_complete"),
    Report(78, "vllm#27194", "an engine that died under load is started again, and its jobs run on",
           test="integration/test_puller.py::"
           "test_a_dead_engine_is_started_again_and_no_innocent_job_is_charged"),
    Report(79, "whisper-asr-webservice#50", "uploads keep nobody from being answered",
           stories.health_answers_beside_five_uploads),
    Report(80, "Scriberr#424", "a transcript is committed before anything that could fail after it",
           test="integration/test_crash_points.py::"
           "test_what_a_crash_leaves_comes_right_within_a_lease_and_two_seconds"),
    Report(81, "Scriberr#185", "a recording that kills engines is told so in a sentence",
           test="integration/test_puller.py::"
           "test_a_recording_that_kills_the_engine_fails_and_the_others_complete"),
    Report(82, "PCA#285", "the rolling audit finds a job that Redis lost without a trace",
           test="integration/test_reclaim.py::"
           "test_one_entry_lost_without_a_trace_is_found_by_the_rolling_audit"),
    Report(83, "flower#1305", "Flower keeps as many tasks as a setting says, the newest",
           stories.flower_keeps_a_thousand_and_the_newest),
    Report(84, "coredevices/mobileapp#336", "a receiver that is down gets its news later, under "
           "the same id", test="integration/test_webhook_worker.py::"
           "test_503_twice_and_a_killed_worker_between_then_it_comes_through"),
    Report(85, "vllm#9342", "the engine's own priority is off",
           stories.an_engines_own_priority_is_off),
)  # fmt: skip

NOT_HERE = {
    69: "needs an accelerator: its workers run under -P solo and their engines come from a fork "
    "server that has touched none (tests/unit/test_die_with_parent.py)",
    73: "we watch no folder; a file that changes while it is sent is told of "
    "(tests/integration/test_cli.py)",
}


def rows() -> list[object]:
    """A row for each story or test; reports that ask the same share one."""
    shared: dict[object, list[Report]] = {}
    for report in REPORTS:
        shared.setdefault(report.check or report.test, []).append(report)
    return [
        pytest.param(same[0], id="+".join(f"{report.number}-{report.where}" for report in same))
        for same in shared.values()
    ]


@pytest.mark.parametrize("report", rows())
def test_what_was_reported_of_other_queues_does_not_happen_here(
    report: Report, request: pytest.FixtureRequest
) -> None:
    if report.check is not None:
        report.check(Here(request.getfixturevalue))
        return
    file, _, name = report.test.partition("::")
    tree = ast.parse((ROOT / "tests" / file).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_the_list_has_every_report_once() -> None:
    assert {report.number for report in REPORTS} ^ NOT_HERE.keys() == set(range(59, 86))
    assert len({(report.number, report.where) for report in REPORTS}) == len(REPORTS)
    assert all((report.check is None) == bool(report.test) for report in REPORTS)
    assert all(report.where and report.we for report in REPORTS)
