"""Arrivals for the simulator: what they are said to be is what they are."""

from __future__ import annotations

import statistics
from random import Random

import pytest

from pipeline.scheduling import tally, traces, workloads
from pipeline.scheduling.policies import Policy, parse_policy
from pipeline.scheduling.scenario import House
from pipeline.scheduling.simulator import simulate
from pipeline.scheduling.work import JOB_S, WINDOW_S, predicted_work_s


def test_a_seed_is_a_workload() -> None:
    assert workloads.calls_s(Random(7), 50) == workloads.calls_s(Random(7), 50)
    assert workloads.calls_s(Random(7), 50) != workloads.calls_s(Random(8), 50)


def test_calls_are_as_long_as_calls() -> None:
    lengths_s = workloads.calls_s(Random(1), 20_000)
    assert statistics.median(lengths_s) == pytest.approx(210, rel=0.03)
    assert min(lengths_s) >= 5.0
    assert max(lengths_s) == 7200.0
    above_ten_minutes = sum(s > 600 for s in lengths_s) / len(lengths_s)
    assert above_ten_minutes == pytest.approx(0.147, abs=0.01)  # 1 - Phi(ln(600 / 210))


def test_measured_lengths_are_drawn_without_replacement() -> None:
    measured_s = [float(n) for n in range(100)]
    assert sorted(workloads.librispeech_s(Random(1), 100, measured_s)) == measured_s
    with pytest.raises(ValueError, match="101 lengths are wanted and there are 100"):
        workloads.librispeech_s(Random(1), 101, measured_s)


def test_without_them_the_fit_has_their_median_and_mean() -> None:
    lengths_s = workloads.librispeech_s(Random(1), 20_000)
    assert statistics.median(lengths_s) == pytest.approx(5.79, rel=0.06)
    assert statistics.fmean(lengths_s) == pytest.approx(7.42, rel=0.02)


def test_arrivals_come_at_their_rate_or_all_at_once() -> None:
    moments = workloads.poisson(Random(2), 20_000, 25.0)
    assert moments[-1] == pytest.approx(20_000 / 25, rel=0.03)
    assert workloads.at_once(3) == [0.0, 0.001, 0.002]


def test_a_day_has_spells() -> None:
    moments = workloads.day(Random(3), [(1000, 1.0), (500, 0.0), (1000, 4.0)])
    first, none, last = (
        sum(low <= m < high for m in moments)
        for low, high in [(0, 1000), (1000, 1500), (1500, 2500)]
    )
    assert (first, none, last) == (pytest.approx(1000, rel=0.1), 0, pytest.approx(4000, rel=0.1))
    assert moments == sorted(moments)


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_clips_fill_the_house_at_its_capacity(share: float) -> None:
    lengths_s = workloads.librispeech_s(Random(4), 500)
    arrivals = workloads.clips(
        lengths_s, workloads.at_once(500), capacity=18, slots=20, fixed_share=share
    )
    assert workloads.mean_slot_s(arrivals) == pytest.approx(20 / 18)
    # the part of the service that does not depend on the length, in parts of the mean length's
    short, mean_s = min(lengths_s), statistics.fmean(lengths_s)
    served = min(arrival.work_s for arrival in arrivals)
    assert served / (20 / 18) == pytest.approx((share + short / mean_s) / (share + 1))


def test_a_call_is_its_windows_and_the_work_the_product_predicts() -> None:
    one = workloads.call("a", 1.25, 75.0, window_s=2.0)
    assert one.at_ms == 1250
    assert one.units == pytest.approx((2.0, 2.0, 2 * (0.11 + 0.89 * 0.5)))
    assert one.work_s == pytest.approx(predicted_work_s(75.0, 3, "en"))
    assert one.work_s - sum(one.unit_works) == pytest.approx(JOB_S)
    assert workloads.call("b", 0, 0.0).units == pytest.approx((0.11,))
    assert workloads.call("b", 0, 0.0).unit_works == pytest.approx((WINDOW_S,))


def test_a_tenant_that_sends_more_than_its_share_arrives_later() -> None:
    mine = [workloads.call(str(n), 0, 30.0) for n in range(4)]
    both = workloads.together(a=mine, b=mine)
    counted = workloads.by_shares(both, {"a": mine[0].work_s})
    moments = {arrival.job_id: arrival.counted_ms for arrival in counted}
    assert [moments[f"a/{n}"] for n in range(4)] == pytest.approx([0, 1000, 2000, 3000], abs=5)
    assert {moments[f"b/{n}"] for n in range(4)} == {0}
    assert [arrival.at_ms for arrival in counted] == [0] * 8


HOUSE_OF_8 = House(slots=8)


@pytest.mark.parametrize("policy", ["fcfs", "hrrn(1)", "hrrn(2.5,300)"])
def test_ten_of_one_tenant_wait_little_longer_beside_a_bulk_of_another(policy: str) -> None:
    rule = parse_policy(policy)
    bulk = workloads.calls(workloads.calls_s(Random(1), 600), workloads.at_once(600))
    capacity = 8 * sum(a.work_s for a in bulk) / sum(sum(a.units) for a in bulk)
    moments = [300 + n / 1000 for n in range(10)]
    few = workloads.calls(workloads.calls_s(Random(2), 10), moments)
    alone = simulate(workloads.together(few=few), rule, HOUSE_OF_8)
    both = workloads.together(bulk=bulk, few=few)
    dated = simulate(workloads.by_equal_shares(both, capacity), rule, HOUSE_OF_8)
    undated = simulate(both, rule, HOUSE_OF_8)
    p90_s = {
        run: statistics.quantiles(
            [o.response_s for o in run.outcomes if o.job_id.startswith("few")], n=10
        )[8]
        for run in (alone, dated, undated)
    }
    assert p90_s[dated] <= 2 * p90_s[alone]
    assert p90_s[undated] > 10 * p90_s[alone], "what it is for"
    # and nothing is idle meanwhile: the last one ends when it does without clocks
    last_s = [max(o.ended_s for o in run.outcomes) for run in (dated, undated)]
    assert last_s[0] <= 1.01 * last_s[1]


def test_a_tenant_alone_below_what_can_be_served_is_ordered_by_the_policy_alone() -> None:
    lengths_s = workloads.calls_s(Random(3), 1_000)
    rate = 0.95 * 32 / workloads.mean_slot_s(workloads.calls(lengths_s, [0.0] * 1_000))
    mine = workloads.calls(lengths_s, workloads.poisson(Random(4), 1_000, rate))
    capacity = 32 * sum(a.work_s for a in mine) / sum(sum(a.units) for a in mine)
    counted = workloads.by_equal_shares(workloads.together(a=mine), capacity)
    assert sum(a.counted_ms != a.at_ms for a in counted) <= 5


def test_a_trace_is_read_in_both_forms_alike() -> None:
    table = ["# ours", "arrived_s,speech_s,windows", "12.5,20,", "10,90,2"]
    lines = [
        '{"arrived_s": 12.5, "speech_s": 20}',
        '{"arrived_s": 10, "speech_s": 90, "windows": 2}',
    ]
    read = traces.recorded(table)
    assert read == traces.recorded(lines)
    assert [(a.at_ms, len(a.units)) for a in read] == [(0, 2), (2500, 1)]
    assert read[0].work_s == pytest.approx(predicted_work_s(90.0, 2, "en"))


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "no arrivals"),
        (["arrived_s,speech_s"], "no arrivals"),
        (["arrived_s,speech_s", "1,2", "x,2"], "row 2 has no number in arrived_s"),
        (["arrived_s", "1"], "row 1 has no number in speech_s"),
        (["arrived_s,speech_s", "1,-2"], "row 1: speech_s is -2"),
        (["arrived_s,speech_s", "1,inf"], "row 1: speech_s is inf"),
        (["arrived_s,speech_s,windows", "1,2,0"], "row 1: windows is 0"),
        (["arrived_s,speech_s,windows", "1,2,1.5"], "row 1: windows is 1.5"),
        (["arrived_s,speech_s,windows", "1,2,1e9"], "row 1: windows is 1e"),
        (['{"arrived_s": 1, "speech_s": 1}', "{"], "row 2 is not a JSON object"),
        (['{"arrived_s": 1, "speech_s": 1}', "[]"], "row 2 is not a JSON object"),
        (['{"arrived_s": ' + "[" * 200_000], "row 1 is not a JSON object"),
        (['{"arrived_s": ' + "1" * 5000 + "}"], "row 1 is not a JSON object"),
        (['{"arrived_s": ' + "1" * 400 + ', "speech_s": 1}'], "row 1 has no number in arrived_s"),
        (["arrived_s,speech_s", "1," + "2" * 200_000], "not a table: field larger"),
        (["arrived_s,speech_s\r1,2\r"], "not a table: new-line character"),
        (["arrived_s,speech_s", "1,1e15"], "row 1: speech_s is 1e"),
        (["arrived_s,speech_s", "-1e308,1", "1e308,1"], "inf s lie between"),
        (["arrived_s,speech_s", "0,1", "1e12,1"], "1e.12 s lie between"),
        (["arrived_s,speech_s,windows"] + ["1,2,100000"] * 41, "4100000 windows are more than"),
        (["arrived_s,speech_s"] + ["1,3000000"] * 41, "4100000 windows are more than"),
    ],
)
def test_a_trace_that_cannot_be_used_is_refused_by_its_row(lines: list[str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        traces.recorded(lines)


@pytest.mark.parametrize(
    "lines",
    [[], ["id\tlength", "a\t4"], ["duration_s", "-1"], ["duration_s", ""], ["duration_s", "1e308"]],
)
def test_durations_that_cannot_be_used_are_refused(lines: list[str]) -> None:
    with pytest.raises(ValueError, match="duration_s"):
        traces.durations_s(lines)


def test_figures_leave_the_warm_up_out_and_say_when_nothing_is_left() -> None:
    arrivals = workloads.calls([30.0, 30.0, 60.0], [0.0, 0.0, 10.0])
    house = House(slots=1)
    run = simulate(arrivals, Policy("fcfs"), house)
    alone = [tally.alone_s(arrival, house) for arrival in arrivals]
    every = tally.figures(run.outcomes, alone, run.throughput)
    last = tally.figures(run.outcomes, alone, run.throughput, skip=2)
    assert (every.p50_s, every.max_s, every.start_max_s) == (2.0, 2.0, 1.0)
    assert (last.p50_s, last.mean_slowdown) == (2.0, 1.0)
    with pytest.raises(ValueError, match="none is left"):
        tally.figures(run.outcomes, alone, run.throughput, skip=3)


def test_the_middle_of_runs_is_the_median_of_each_figure() -> None:
    arrivals = workloads.calls([30.0], [0.0])
    runs = [simulate(arrivals, Policy("fcfs"), House(pace=[speed])) for speed in (1.0, 2.0, 0.5)]
    each = [tally.figures(run.outcomes, [1.0], run.throughput) for run in runs]
    assert tally.middle(each).p50_s == 1.0
    assert tally.change(3.0, 0.0) is None
