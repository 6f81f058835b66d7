"""Turns of a worker, judged by the rule: made-up logs with the arithmetic beside them."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from bench.arrivals import Came
from bench.clips import hollow, spoken, windows_of
from bench.picks import Begun, Judged, Known, equal_turns, judge, read_windows
from bench.rehearsal import as_kept, beside, echo_units, losses, rehearse
from pipeline.recording import SAMPLE_RATE_HZ
from pipeline.scheduling.policies import Policy
from pipeline.scheduling.scenario import House

FCFS, SJF = Policy("fcfs"), Policy("sjf")


def job(job_id: str, seen_s: float, *works: float) -> Known:
    return Known(job_id, round(seen_s * 1000), seen_s, works, 0.0)


def turns(*each: tuple[str, float, float]) -> list[Begun]:
    """Windows by (job, when its slot was given, when it was heard), in order of turns."""
    heard: dict[str, int] = {}
    found = []
    for turn, (job_id, given_s, ended_s) in enumerate(each):
        unit = heard[job_id] = heard.get(job_id, -1) + 1
        found.append(Begun(job_id, unit, turn, given_s, given_s, ended_s))
    return found


def test_who_is_first_by_the_rule_is_right() -> None:
    jobs = {"long": job("long", 0.0, 9.0), "short": job("short", 0.1, 1.0)}
    by_age = turns(("long", 1.0, 10.0), ("short", 10.0, 11.0))
    assert judge(by_age, jobs, FCFS) == Judged(2, 0, ())
    assert judge(by_age, jobs, SJF) == Judged(1, 0, (0,))


def test_a_job_that_came_while_the_claim_was_under_way_may_be_passed_over() -> None:
    jobs = {"long": job("long", 0.0, 9.0), "short": job("short", 0.95, 1.0)}
    both = turns(("long", 1.0, 10.0), ("short", 10.0, 11.0))  # 50 ms after the short one came
    assert judge(both, jobs, SJF) == Judged(1, 1, ())
    late = turns(("long", 1.2, 10.0), ("short", 10.0, 11.0))  # 250 ms after
    assert judge(late, jobs, SJF).wrong == (0,)


def test_a_job_that_has_a_turn_was_there_whenever_it_was_written_down() -> None:
    jobs = {"first": Known("first", 900, 1.05, (1.0,), 0.0), "second": job("second", 0.95, 1.0)}
    assert judge(turns(("first", 1.0, 2.0), ("second", 2.0, 3.0)), jobs, FCFS).right == 2


def test_a_job_counts_for_what_is_not_heard_of_it() -> None:
    # Two slots. At 5 s two thirds of `call` are heard: 3 of work against 4.
    jobs = {"call": job("call", 0.0, 3.0, 3.0, 3.0), "clip": job("clip", 2.0, 4.0)}
    served = turns(("call", 0.0, 5.0), ("call", 0.0, 5.0), ("call", 5.0, 8.0), ("clip", 5.0, 9.0))
    assert judge(served, jobs, SJF) == Judged(4, 0, ())
    # At 5 s only one third is: 6 against 4, and the clip goes first.
    served[1] = replace(served[1], ended_s=6.0)
    assert judge(served, jobs, SJF).wrong == (2,)


def test_windows_are_read_from_a_log_in_order_of_turns() -> None:
    told = {"event": "window_heard", "job_id": "a", "unit": 0, "given_s": 1.0, "began_s": 1.1}
    told |= {"ended_s": 2.0, "level": "debug"}
    by_celery = "[2026-01-02 03:04:05,678: WARNING/MainProcess] "
    lines = [by_celery + json.dumps(told | {"turn": turn}) for turn in (1, 0)]
    found = read_windows(["celery@here ready.", *lines, json.dumps({"event": "granted"})])
    assert [window.turn for window in found] == [0, 1]
    assert found[0] == Begun("a", 0, 0, 1.0, 1.1, 2.0)


def test_equal_turns_are_counted_one_by_one() -> None:
    assert equal_turns(["a", "b", "c"], ["a", "c", "b"]) == 1
    with pytest.raises(ValueError, match="shorter"):
        equal_turns(["a"], [])


def test_a_clip_is_one_window_of_exactly_its_length() -> None:
    lengths_s = [1.285, 7.4, 29.99]
    clips = spoken(lengths_s, seed=3)
    for clip, length_s in zip(clips, lengths_s, strict=True):
        (window,) = clip.plan.windows
        assert window.sample_count == round(length_s * SAMPLE_RATE_HZ)
        assert clip.packed is not None
        assert len(clip.packed) == clip.size_bytes == 2 * window.sample_count
    assert [c.packed for c in spoken(lengths_s, seed=3)] == [c.packed for c in clips]
    assert [c.packed for c in spoken(lengths_s, seed=4)] != [c.packed for c in clips]
    with pytest.raises(ValueError, match="at most 30 s"):
        spoken([31.0], seed=3)


def test_a_call_is_windows_of_thirty_seconds_and_what_is_left() -> None:
    assert windows_of(60.0) == [30.0, 30.0]
    (clip,) = hollow([75.5])
    assert [w.length_s for w in clip.plan.windows] == [30.0, 30.0, 15.5]
    # S is JOB_S and the work of its windows
    assert clip.work_s == pytest.approx(0.05 + sum(clip.works))


def test_a_line_that_does_what_the_simulator_says_compares_as_equal() -> None:
    clips = hollow([10.0, 40.0, 5.0])
    came = [Came(f"job-{n}", clip, 1000 + n, 1.0, 0.0, ()) for n, clip in enumerate(clips)]
    run = rehearse(came, SJF, House(slots=1), echo_units(1.0, 0.1))
    # 5 s, 10 s, 30 s + 10 s of speech take 1.5, 2, 4 and 2 s, one after the other
    assert run.picks == ("job-2", "job-0", "job-1", "job-1")
    assert [outcome.ended_s for outcome in run.outcomes] == [4.5, 10.5, 2.5]
    real = [_as_rehearsed(came[0], 1, 2.5, 4.5), _as_rehearsed(came[1], 2, 4.5, 8.5, 10.5)]
    real.append(_as_rehearsed(came[2], 0, 1.0, 2.5))
    told = beside(real, SJF, run)
    assert (told["turns"], told["equal_turns"], told["right"], told["wrong"]) == (4, 4, 4, 0)
    assert told["p50_ratio"] == told["p90_ratio"] == told["mean_ratio"] == 1.0


def test_what_a_line_loses_is_told_by_its_places() -> None:
    # One slot. `a` finds it free and has it after 0.2 s; `b` waits, and the slot is empty for 0.5 s
    # after `a`; each result is in Postgres 0.1 s after its window. As one each keeps it for 3 s and
    # for 4 s with the gap before.
    clips, heard = hollow([10.0, 10.0]), [(1.2, 4.2), (4.7, 8.2)]
    came = [
        Came(
            job_id, clip, 1000, seen_s, to_s + 0.1, (Begun(job_id, 0, turn, from_s, from_s, to_s),)
        )
        for turn, (job_id, clip, seen_s, (from_s, to_s)) in enumerate(
            zip("ab", clips, [1.0, 2.0], heard, strict=True)
        )
    ]
    assert losses(came, slots=1) == {"pickup_ms": 200.0, "gap_ms": 500.0, "commit_ms": 100.0}
    units = as_kept(came, slots=1)
    assert [units(one) for one in came] == [pytest.approx((3.0,)), pytest.approx((4.0,))]


def _as_rehearsed(came: Came, turn: int, *edges_s: float) -> Came:
    windows = tuple(
        Begun(came.job_id, unit, turn + unit, from_s, from_s, to_s)
        for unit, (from_s, to_s) in enumerate(pairwise(edges_s))
    )
    return replace(came, windows=windows, ended_s=edges_s[-1])
