"""The simulator: the rule of the claims, job by job, and what a house of workers does with it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.scheduling.dispatch import Credit, pick
from pipeline.scheduling.policies import Policy, Waiting, order_key, pairs, parse_policy
from pipeline.scheduling.scenario import Arrival, House, View
from pipeline.scheduling.simulator import simulate
from pipeline.scheduling.work import bucket_of

POLICIES = ["fcfs", "sjf", "hrrn(0.5)", "hrrn(1)", "hrrn(2.5)", "aged(2)", "aged(50)"]


def one(job_id: str, at_ms: int, *units: float, work_s: float | None = None) -> Arrival:
    return Arrival(job_id, at_ms, units, sum(units) if work_s is None else work_s)


def picked_by_brute_force(
    arrivals: Sequence[Arrival], policy: Policy, slots: int, max_wait_ms: int
) -> list[str]:
    """One worker at pace 1, by `dispatch.pick` over every job that waits. Whole seconds only."""
    table, credit = pairs(policy), Credit()
    next_unit = dict.fromkeys((a.job_id for a in arrivals), 0)
    heard = dict.fromkeys((a.job_id for a in arrivals), 0)
    ends: list[tuple[float, str]] = []
    picks: list[str] = []
    for now_s in range(10_000):
        for end in [end for end in ends if end[0] <= now_s]:
            ends.remove(end)
            heard[end[1]] += 1
        while len(ends) < slots:
            waiting = [
                Waiting(
                    a.job_id, bucket_of(a.work_s * (1 - heard[a.job_id] / len(a.units))), a.at_ms
                )
                for a in arrivals
                if a.at_ms <= now_s * 1000 and next_unit[a.job_id] < len(a.units)
            ]
            if not waiting:
                break
            first = min(waiting, key=lambda job: order_key(job, table, now_s * 1000))
            late = now_s * 1000 - max_wait_ms if max_wait_ms and credit else None
            best = pick(waiting, table, now_s * 1000, late)
            assert best is not None
            credit.earn() if best == first else credit.spend()
            next_unit[best.job_id] += 1
            picks.append(best.job_id)
            ends.append((now_s + 1.0, best.job_id))
        if not ends and all(next_unit[a.job_id] == len(a.units) for a in arrivals):
            return picks
    raise AssertionError("it never ends")


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6)), min_size=1, max_size=12),
    slots=st.integers(1, 4),
    max_wait_s=st.sampled_from([0, 3]),
)
def test_every_pick_is_the_one_a_look_at_all_jobs_would_make(
    policy: str, sizes: list[tuple[int, int]], slots: int, max_wait_s: int
) -> None:
    rule = parse_policy(policy)
    arrivals = [
        Arrival(f"job-{n:02}", at_s * 1000, (1.0,) * units, float(units))
        for n, (at_s, units) in enumerate(sizes)
    ]
    run = simulate(arrivals, rule, House(slots=slots), max_wait_s=max_wait_s)
    assert list(run.picks) == picked_by_brute_force(arrivals, rule, slots, max_wait_s * 1000)


def test_a_newcomer_that_outranks_a_long_job_gets_the_next_slot() -> None:
    run = simulate(
        [one("long", 0, *[1.0] * 5), one("short", 1500, 1.0)], Policy("sjf"), House(slots=1)
    )
    assert run.picks == ("long", "long", "short", "long", "long", "long")
    assert [o.wait_s for o in run.outcomes] == [0.0, 0.5]


def test_at_file_level_a_job_keeps_its_slot_to_the_end() -> None:
    run = simulate(
        [one("long", 0, *[1.0] * 5), one("short", 1500, 1.0)],
        Policy("sjf"),
        House(slots=1, level="file"),
    )
    assert run.picks == ("long", "short")
    assert [o.ended_s for o in run.outcomes] == [5.0, 6.0]


def test_units_in_service_together_are_slower_as_the_pace_says() -> None:
    # alone at speed 1 for 1 s, then both at 0.5 until the first has had its 2 s: 1 + 1 / 0.5 = 3;
    # the second has had 1 s by then and ends alone, at 4
    arrivals = [one("a", 0, 2.0), one("b", 1000, 2.0)]
    run = simulate(arrivals, Policy("fcfs"), House(slots=2, pace=lambda n: 1 / n))
    assert [o.ended_s for o in run.outcomes] == pytest.approx([3.0, 4.0])
    same = simulate(arrivals, Policy("fcfs"), House(slots=2, pace=[1.0, 0.5]))
    assert same == run


def test_ranks_go_by_predicted_work_and_service_by_the_true_one() -> None:
    wrong = [one("busy", 0, 1.0), one("said-short", 1, 9.0, work_s=1.0), one("short", 2, 2.0)]
    run = simulate(wrong, Policy("sjf"), House(slots=1))
    assert run.picks == ("busy", "said-short", "short")
    assert run.outcomes[2].started_s == pytest.approx(10.0)


def test_a_job_counts_as_having_arrived_when_it_is_said_to() -> None:
    late = Arrival("late", 0, (1.0,), 1.0, counted_ms=60_000)
    run = simulate([one("busy", 0, 1.0), late, one("own", 10, 1.0)], Policy("fcfs"), House(slots=1))
    assert run.picks == ("busy", "own", "late")
    assert run.outcomes[1].arrived_s == 0.0


def test_a_job_of_one_worker_is_not_served_by_another() -> None:
    # two workers with a slot each: four seconds of units one after the other, not side by side
    run = simulate([one("long", 0, *[1.0] * 4)], Policy("fcfs"), House(workers=2, slots=1))
    assert run.outcomes[0].ended_s == 4.0


def test_a_job_in_hand_that_starves_goes_back_and_another_worker_takes_it() -> None:
    # Given two workers of a slot: one is busy until 4.5 s, the other has a long job in hand. Short
    # jobs pass over it from 1 s on, and one that is only said to be short from 3 s to 23 s.
    short = [one(f"short-{n}", 500 + 1000 * n, 1.0) for n in range(3)]
    liar = one("said-short", 2900, 20.0, work_s=0.5)
    arrivals = [one("busy", 0, 4.5, work_s=1.0), one("long", 1, *[1.0] * 6), *short, liar]
    run = simulate(arrivals, Policy("sjf"), House(workers=2, slots=1))
    # Then the first worker has the long job after one more short one: 5.5 s and its other 5 windows
    ended_s = {outcome.job_id: outcome.ended_s for outcome in run.outcomes}
    assert ended_s["said-short"] == pytest.approx(23.0, abs=0.01)
    assert ended_s["long"] == pytest.approx(10.5, abs=0.01)


def test_a_rule_of_the_backlog_is_asked_at_most_once_a_second() -> None:
    asked: list[tuple[int, View]] = []

    def rule(now_ms: int, view: View) -> Policy:
        asked.append((now_ms, view))
        return Policy("sjf") if view.waiting > 2 else Policy("fcfs")

    arrivals = [one(f"job-{n}", 100 * n, 1.0 + (5 - n) / 10) for n in range(6)]
    run = simulate(arrivals, rule, House(slots=1))
    moments = [now_ms for now_ms, _ in asked]
    assert all(later - earlier >= 1000 for earlier, later in itertools.pairwise(moments))
    assert run.switches >= 1
    assert asked[0][1] == View(waiting=1, waiting_work_s=1.5, slots=1)


def test_overdue_jobs_get_at_most_a_tenth_of_the_units_and_one() -> None:
    long = [one(f"long-{n}", 0, 1.0, work_s=50.0) for n in range(20)]
    short = [one(f"short-{n:03}", 500 * n, 1.0, work_s=1.0) for n in range(400)]
    run = simulate([*long, *short], Policy("sjf"), House(slots=2), max_wait_s=10)
    assert 0 < run.promoted <= 0.1 * len(run.picks) + 1
    never = simulate([*long, *short], Policy("sjf"), House(slots=2))
    longest = max(outcome.wait_s for outcome in run.outcomes)
    assert longest < max(outcome.wait_s for outcome in never.outcomes)


def test_nothing_at_all_is_no_run() -> None:
    run = simulate([], Policy("fcfs"), House())
    assert (run.outcomes, run.picks, run.throughput) == ((), (), 0.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: House(slots=0),
        lambda: House(workers=0),
        lambda: House(level="job"),
        lambda: House(pace=[]),
        lambda: House(pace=lambda n: 1 - n),
        lambda: simulate([Arrival("a", 0, (), 1.0)], Policy("fcfs"), House()),
        lambda: simulate([Arrival("a", 0, (1.0,), float("nan"))], Policy("fcfs"), House()),
        lambda: simulate([Arrival("a", 0, (1.0,), 1.0, None, (1.0, 1.0))], Policy("fcfs"), House()),
        lambda: simulate([], Policy("fcfs"), House(), max_wait_s=-1),
    ],
)
def test_nonsense_is_refused(make: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        make()  # type: ignore[operator]
