"""Orders of work side by side: the workloads, the entries, and the figures the issue asks for."""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import pytest

from bench import policies
from pipeline.scheduling import contest
from pipeline.scheduling.cases import CASES, Asked
from pipeline.scheduling.policies import Policy
from pipeline.scheduling.scenario import Rule

FIGURES = {"p25_s", "p50_s", "p90_s", "p99_s", "max_s", "mean_slowdown"}


def asked(*words: str) -> argparse.Namespace:
    return policies._parser().parse_args([*words, "--json"])


@pytest.mark.parametrize("workload", CASES)
def test_every_workload_is_served_to_the_last_job_under_every_entry(workload: str) -> None:
    jobs = 40 if workload != "day" else None  # a day has as many as its load says
    case = CASES[workload](1, Asked(jobs=jobs, load=0.02))
    entries = [contest.parse_entry(e) for e in ("file-fcfs", "fcfs", "hrrn(2.5)@60", "sjf")]
    for run in (contest.play(entry, case) for entry in entries):
        assert len(run.outcomes) == len(case.arrivals)
        assert all(o.arrived_s <= o.started_s < o.ended_s for o in run.outcomes)


def test_entries_are_read_as_people_write_them() -> None:
    assert contest.parse_entry(" HRRN ").name == "hrrn(1)"
    assert contest.parse_entry("fcfs@0").name == "fcfs"
    promoted = contest.parse_entry("hrrn(2.5)@60")
    assert (promoted.policy, promoted.max_wait_s) == (Policy("hrrn", 2.5), 60.0)
    assert contest.parse_entry("file-fcfs").level == "file"
    for nonsense in ("", "best", "hrrn(2.5)@", "hrrn@soon", "fcfs@-1", "sjf@inf"):
        with pytest.raises(ValueError, match=r"\w"):
            contest.parse_entry(nonsense)


def test_the_load_asked_for_is_the_load_offered() -> None:
    for workload, load in (("librispeech", 1.39), ("calls", 0.95)):
        case = CASES[workload](3, Asked(load=load, jobs=2000))
        lasted_s = case.arrivals[-1].at_ms / 1000
        offered = sum(sum(a.units) for a in case.arrivals) / lasted_s / case.house.slots
        assert offered == pytest.approx(load, rel=0.06)


def test_the_report_has_the_keys_it_promises() -> None:
    report = policies.measured(asked("--workload", "calls", "--jobs", "60", "--seeds", "2"))
    assert set(report["policies"]) == {"file-fcfs", "fcfs", "sjf", "hrrn(1)", "hrrn(2.5,300)"}
    assert all(set(row) >= FIGURES for row in report["policies"].values())
    assert report["baselines"] == {"file-fcfs": "file-fcfs", "window-fcfs": "fcfs"}
    assert report["default"] == str(contest.parse_entry(report["default"]).policy)
    assert report["policies"]["fcfs"]["change_p50"] == 0.0
    assert set(report["goals_met"]) > {"all"}


def test_a_clip_of_one_window_has_one_baseline() -> None:
    report = policies.measured(asked("--jobs", "60", "--seeds", "1"))
    assert report["baselines"] == {"file-fcfs": "fcfs", "window-fcfs": "fcfs"}
    assert set(report["policies"]) == {"fcfs", "sjf", "hrrn(1)", "hrrn(2.5,300)"}


def test_a_contest_of_a_single_job_meets_no_goal_it_says_nothing_about() -> None:
    report = policies.measured(asked("--workload", "calls", "--jobs", "1", "--seeds", "1"))
    assert report["policies"]["sjf"]["change_start_p50"] is None
    assert report["goals_met"]["all"] == []


def test_rates_give_a_contest_each() -> None:
    report = policies.measured(asked("--rates", "1,25", "--jobs", "50", "--seeds", "1"))
    assert list(report["rates"]) == ["1", "25"]
    assert report["rates"]["25"]["rate"] == 25.0


def test_two_classes_are_told_apart() -> None:
    words = ("--workload", "bulk", "--jobs", "100", "--seeds", "1", "--policies", "hrrn(2.5)")
    report = policies.measured(asked(*words))
    trickle, bulk = report["classes"]["trickle"], report["classes"]["bulk"]
    assert trickle["hrrn(2.5)"]["p50_s"] < bulk["hrrn(2.5)"]["p50_s"]


@pytest.mark.parametrize(
    "words",
    [
        ("--slots", "999999999"),
        ("--engine", "echo", "--slots", "-1"),
        ("--engine", "echo", "--jobs", "0"),
        ("--engine", "echo", "--load", "nan"),
        ("--load", "-1"),
        ("--load", "nan"),
        ("--load", "1", "--rate", "3"),
        ("--rates", "1,fast"),
        ("--jobs", "0"),
        ("--slots", "0"),
        ("--seeds", "-3"),
        ("--fixed-share", "-0.5"),
        ("--policies", "best"),
        ("--durations", "no/such/file"),
        ("--durations", str(Path(__file__))),
        ("--rate", "inf"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_sentence(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["policies", *words])
    assert policies.main() == 2
    said: Any = capsys.readouterr()
    assert said.out == ""
    assert said.err.strip().endswith(".")


def test_a_rule_of_the_backlog_takes_part_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy() -> Rule:
        return lambda now_ms, view: Policy("sjf" if view.waiting > view.slots else "fcfs")

    monkeypatch.setitem(contest.RULES, "busy", busy)
    report = policies.measured(asked("--policies", "busy,sjf", "--jobs", "300", "--seeds", "2"))
    assert report["policies"]["busy"]["change_p50"] < -0.2
    assert contest.parse_entry("busy@5").max_wait_s == 5.0


@pytest.mark.parametrize("entry", ["hrrn(2.5,300)", "hrrn(2.5,300)@60"])
def test_a_short_call_does_not_wait_for_a_bulk_of_2500(entry: str) -> None:
    case = CASES["bulk"](0, Asked())
    outcomes = contest.play(contest.parse_entry(entry), case).outcomes
    trickle = [o.response_s for o in outcomes if o.job_id.startswith("trickle/")]
    assert len(outcomes) - len(trickle) == 2500
    assert statistics.median(trickle) <= 10.0


@pytest.mark.parametrize(("share", "p50", "p90"), [("0.25", -0.60, 0.05), ("1.0", -0.45, 0.13)])
def test_one_policy_meets_the_goals_on_clips_under_both_models_of_service(
    share: str, p50: float, p90: float
) -> None:
    # lengths from the fit, 20 seeds: the full figures are in docs/scheduling.md
    report = policies.measured(asked("--fixed-share", share, "--seeds", "20"))
    row = report["policies"]["hrrn(2.5,300)"]
    assert row["change_p50"] <= p50
    assert row["change_p90"] <= p90
