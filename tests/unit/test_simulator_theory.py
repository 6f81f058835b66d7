"""The simulator against queue theory: where a formula is known, it must give what the formula says.

Every test states its tolerance in standard errors. They come from the means of batches of jobs that
are long against the time in which a queue forgets (batch means), so that jobs next to each other,
which waited together, do not count as independent.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from random import Random

import pytest

from pipeline.scheduling.policies import parse_policy
from pipeline.scheduling.scenario import Arrival, House, Run
from pipeline.scheduling.simulator import simulate
from pipeline.scheduling.work import bucket_of, bucket_work_s
from pipeline.scheduling.workloads import poisson

JOBS, BATCHES, WARM_UP = 40_000, 25, 1_500
ERRORS = 3.0
"""Standard errors a mean may be off: with fixed seeds this passes always or never; by chance one
right simulator in 300 would not."""


def queue(
    seed: int, rate: float, service: Callable[[Random], float], jobs: int = JOBS
) -> list[Arrival]:
    """Poisson arrivals of one unit each, their work predicted exactly."""
    rng = Random(seed)
    moments_s = poisson(rng, jobs, rate)
    services_s = [service(rng) for _ in range(jobs)]
    return [
        Arrival(f"{n:07d}", round(1000 * at_s), (service_s,), service_s)
        for n, (at_s, service_s) in enumerate(zip(moments_s, services_s, strict=True))
    ]


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean after the warm-up and its standard error, by batch means."""
    kept = values[WARM_UP:]
    size = len(kept) // BATCHES
    means = [statistics.fmean(kept[n * size : (n + 1) * size]) for n in range(BATCHES)]
    return statistics.fmean(means), statistics.stdev(means) / math.sqrt(BATCHES)


def assert_agrees(values: Sequence[float], expected: float, allowed: float = 0.0) -> None:
    """The mean is within ERRORS standard errors (and `allowed`, where a model differs by that)."""
    mean, error = mean_and_error(values)
    assert error < 0.1 * expected, "too few jobs to say anything"
    assert abs(mean - expected) <= ERRORS * error + allowed, (mean, expected, error)


def responses(run: Run) -> list[float]:
    return [outcome.response_s for outcome in run.outcomes]


def waits(run: Run) -> list[float]:
    return [outcome.wait_s for outcome in run.outcomes]


def test_one_server_with_exponential_service_answers_in_one_over_mu_minus_lambda() -> None:
    # M/M/1, lambda 0.8, mu 1: T = 1 / (mu - lambda) = 5 s
    arrivals = queue(1, 0.8, lambda rng: rng.expovariate(1.0))
    run = simulate(arrivals, parse_policy("fcfs"), House(slots=1))
    assert_agrees(responses(run), 5.0)


@pytest.mark.parametrize(
    ("service", "second_moment"),
    [
        (lambda rng: 1.0, 1.0),  # M/D/1
        (lambda rng: rng.uniform(0.0, 2.0), 4.0 / 3.0),
        (lambda rng: 0.5 if rng.random() < 0.9 else 5.5, 0.9 * 0.25 + 0.1 * 30.25),
    ],
)
def test_one_server_in_order_of_arrival_waits_as_pollaczek_and_khinchine_say(
    service: Callable[[Random], float], second_moment: float
) -> None:
    # M/G/1 FCFS: W = lambda * E[S^2] / (2 * (1 - rho)), here with E[S] = 1 and lambda = rho = 0.7
    arrivals = queue(2, 0.7, service)
    run = simulate(arrivals, parse_policy("fcfs"), House(slots=1))
    assert_agrees(waits(run), 0.7 * second_moment / (2 * (1 - 0.7)))


@pytest.mark.parametrize("house", [House(slots=5), House(workers=5, slots=1)])
def test_several_slots_wait_as_erlang_says(house: House) -> None:
    # M/M/c: Erlang C with c = 5 and offered load a = 3.5; W = C / (c * mu - lambda)
    c, a = 5, 3.5
    busy = a**c / math.factorial(c) * c / (c - a)
    all_busy = busy / (sum(a**k / math.factorial(k) for k in range(c)) + busy)
    arrivals = queue(3, a, lambda rng: rng.expovariate(1.0))
    run = simulate(arrivals, parse_policy("fcfs"), house)
    assert_agrees(waits(run), all_busy / (c - a))


def test_the_shortest_first_waits_as_cobham_says_class_by_class() -> None:
    # M/G/1, non-preemptive priorities: W_k = (lambda E[S^2] / 2) / ((1 - r_(k-1)) * (1 - r_k)),
    # r_k the load of classes 1..k. Three sizes in three buckets, of equal probability.
    sizes, rate = (0.5, 1.0, 2.5), 0.6
    arrivals = queue(4, rate, lambda rng: rng.choice(sizes))
    run = simulate(arrivals, parse_policy("sjf"), House(slots=1))
    residual = rate * statistics.fmean(size**2 for size in sizes) / 2
    before = 0.0
    for size in sizes:
        until = before + rate / 3 * size
        mine = [
            outcome.wait_s
            for outcome, arrival in zip(run.outcomes, arrivals, strict=True)
            if arrival.units == (size,)
        ]
        mean = statistics.fmean(mine[WARM_UP // 3 :])
        batch = len(mine) // BATCHES
        means = [statistics.fmean(mine[n * batch : (n + 1) * batch]) for n in range(BATCHES)]
        error = statistics.stdev(means) / math.sqrt(BATCHES)
        expected = residual / ((1 - before) * (1 - until))
        assert abs(mean - expected) <= ERRORS * error, (size, mean, expected, error)
        before = until


def test_the_shortest_first_waits_as_phipps_says_whatever_the_sizes() -> None:
    # M/G/1 SJF, exponential sizes of mean 1: W = integral of (lambda E[S^2] / 2) f(x) dx /
    # (1 - rho(x))^2, with rho(x) = lambda * integral_0^x t f(t) dt = lambda (1 - e^-x (1 + x)).
    # Buckets take sizes within 10 % for equal: their order inside is that of arrival, which costs
    # little. The formula with classes as wide as the buckets says how little; it is used here.
    rate = 0.8
    edges = [0.0, *(bucket_work_s(b) * math.sqrt(1.1) for b in range(90))]
    expected, before = 0.0, 0.0
    for low, high in zip(edges, [*edges[1:], math.inf], strict=True):
        until = rate * (1.0 - (math.exp(-high) * (1 + high) if high < math.inf else 0.0))
        mass = math.exp(-low) - math.exp(-high)
        expected += mass * rate / ((1 - before) * (1 - until))
        before = until
    assert bucket_of(edges[5] * 0.999) == 4
    assert bucket_of(edges[5] * 1.001) == 5
    arrivals = queue(5, rate, lambda rng: rng.expovariate(1.0))
    run = simulate(arrivals, parse_policy("sjf"), House(slots=1))
    assert_agrees(waits(run), expected)


def test_the_least_remaining_work_first_in_small_windows_answers_as_schrage_and_miller_say() -> (
    None
):
    # SRPT: T(x) = lambda (int_0^x t^2 f + x^2 (1 - F(x))) / (2 (1 - rho(x))^2)
    #            + int_0^x dt / (1 - rho(t));  exponential sizes of mean 1, lambda = 0.7
    # Jobs are served in windows of 1/16 s and ranked by what remains: preemption waits for the end
    # of a window, half of one on average while the server is busy, and the buckets take remaining
    # works within 10 % for equal. Both make it slower, by less than a window together.
    rate, window_s = 0.7, 1 / 16
    step, horizon = 0.005, 25.0
    expected = second = within = 0.0
    x = step / 2
    while x < horizon:
        density, tail = math.exp(-x), math.exp(-x)
        load = rate * (1 - math.exp(-x) * (1 + x))
        second += x * x * density * step
        within += step / (1 - load)
        wait = rate * (second + x * x * tail) / (2 * (1 - load) ** 2)
        expected += (wait + within) * density * step
        x += step
    rng = Random(6)
    arrivals = []
    for n, at_s in enumerate(poisson(rng, JOBS // 3, rate)):
        size_s = rng.expovariate(1.0)
        full = int(size_s / window_s)
        units = (window_s,) * full + (size_s - full * window_s,)
        arrivals.append(Arrival(f"{n:07d}", round(1000 * at_s), units, size_s))
    run = simulate(arrivals, parse_policy("sjf"), House(slots=1))
    assert_agrees(responses(run), expected, allowed=window_s)


def test_service_shared_by_all_answers_as_processor_sharing_does() -> None:
    # M/G/1-PS: T = E[S] / (1 - rho), whatever the distribution of sizes. 200 slots are enough never
    # to be full at this load, and n units share one server: pace(n) = 1/n.
    arrivals = queue(7, 0.7, lambda rng: 0.5 if rng.random() < 0.9 else 5.5, jobs=30_000)
    run = simulate(arrivals, parse_policy("fcfs"), House(slots=200, pace=lambda n: 1 / n))
    assert_agrees(responses(run), 1 / (1 - 0.7))


def test_what_came_at_once_is_served_alike_by_sjf_and_by_every_hrrn() -> None:
    # All waited equally long, so W / S^g falls with S: hrrn orders by size, and with one unit a job
    # nothing changes that order later.
    rng = Random(8)
    services_s = [rng.lognormvariate(0.0, 1.0) for _ in range(500)]
    arrivals = [Arrival(f"{n:03d}", 0, (s,), s) for n, s in enumerate(services_s)]
    picks = {
        policy: simulate(arrivals, parse_policy(policy), House(slots=20)).picks
        for policy in ("sjf", "hrrn(0.25)", "hrrn(1)", "hrrn(2.5)")
    }
    assert len(set(picks.values())) == 1


def test_an_order_changes_who_waits_and_not_how_much_is_done() -> None:
    # One server that never idles while somebody waits: the moments at which it is busy are the same
    # under every order (conservation), so the last end is too, and so is the mean over jobs of wait
    # times size (Kleinrock's conservation law), because the unfinished work is.
    arrivals = queue(9, 0.8, lambda rng: rng.expovariate(1.0), jobs=5_000)
    busy: dict[str, tuple[float, float]] = {}
    for policy in ("fcfs", "sjf", "hrrn(2.5)", "aged(20)"):
        run = simulate(arrivals, parse_policy(policy), House(slots=1))
        weighted = sum(
            outcome.wait_s * arrival.work_s
            for outcome, arrival in zip(run.outcomes, arrivals, strict=True)
        )
        busy[policy] = (max(outcome.ended_s for outcome in run.outcomes), weighted)
    for last_s, weighted in busy.values():
        assert last_s == pytest.approx(busy["fcfs"][0], rel=1e-9)
        assert weighted == pytest.approx(busy["fcfs"][1], rel=1e-9)
