"""One tenant's bulk beside another's ten: how long the ten take, and how long they would alone.

    python -m bench.tenants [--files 2000] [--policy P] [--json]   a real house with the echo engine
    python -m bench.tenants --simulated [--json]                   the simulator, several policies

The house is everything `fairscribe up` starts. Jobs come as their survey would leave them, rows in
Postgres and places in the queue (bench/arrivals.py), each counted by its tenant's clock as a probe
counts it; workers claim and serve them. The ten come first alone, then when three tenths of the
bulk are done. Exits with 0 when the ten's P90 beside the bulk is at most twice what it is alone.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from random import Random
from typing import Any

from sqlalchemy import func, select, text

from bench.arrivals import Arrivals
from bench.clips import Clip, hollow
from bench.demo import everything_up, throwaway_home
from pipeline.job import TRANSCRIBE
from pipeline.scheduling import workloads
from pipeline.scheduling.policies import Waiting, parse_policy
from pipeline.scheduling.scenario import Arrival, House
from pipeline.scheduling.simulator import simulate
from pipeline.settings import DEFAULT_POLICY
from pipeline.store.session import clock_ms, transaction
from pipeline.store.tables import jobs
from pipeline.store.tenants import Clocks

FEW = 10
SLOTS = 8
ECHO = {"ECHO_FIXED_S": "0.1", "ECHO_PER_SECOND_S": "0.02"}
"""Some 0.7 s a window of 30 s: long against a claim."""

LENGTHS_S = (5.0, 90.0)
"""Calls of one to three windows, so that 2,000 take minutes and not hours."""

POLICIES = ("fcfs", "sjf", "hrrn(1)", DEFAULT_POLICY, "aged(10)")


# -- a real house ---------------------------------------------------------------------------


class Tenants(Arrivals):
    """Brings jobs of tenants, counted by their clocks."""

    def bring(self, clocks: Clocks, tenant: str, clips: Sequence[Clip]) -> list[str]:
        """All in the queue at one moment, counted in their order; their ids."""
        stored, places = [self._store(clip) for clip in clips], list[Waiting]()
        mine = text("UPDATE jobs SET tenant = :t, counted_ms = :m WHERE id = :i")
        with transaction(self.parts.store) as c:
            arrival_ms = clock_ms(c)
            for job_id, clip in zip(stored, clips, strict=True):
                counted_ms = clocks.count(c, tenant, arrival_ms, clip.work_s)
                place = self._insert(c, clip, job_id, arrival_ms)
                c.execute(mine, {"t": tenant, "m": counted_ms, "i": job_id})
                places.append(Waiting(job_id, place.bucket, counted_ms))
        self.parts.queues[TRANSCRIBE.name].enqueue(places)
        return stored

    def took_s(self, tenant: str, job_ids: Sequence[str], within_s: float) -> list[float]:
        """From arrival to transcript, of each, once all have one."""
        end_s = time.monotonic() + within_s
        took = func.extract("epoch", jobs.c.completed_at) - jobs.c.arrival_ms / 1000.0
        query = select(took).where(jobs.c.tenant == tenant, jobs.c.id.in_(job_ids))
        while time.monotonic() < end_s:
            with transaction(self.parts.store) as c:
                found = [float(s) for s in c.scalars(query) if s is not None]
            if len(found) == len(job_ids):
                return found
            time.sleep(0.2)
        raise SystemExit(f"{tenant}: not all have ended within {within_s:g} s")

    def left(self, tenant: str) -> int:
        """How many of its jobs have not ended."""
        mine = jobs.c.tenant == tenant, jobs.c.completed_at.is_(None)
        with transaction(self.parts.store) as c:
            return int(c.scalar(select(func.count()).where(*mine)) or 0)

    def clocks(self) -> Clocks:
        """Clocks as the errands worker has them."""

        def capacity() -> float | None:
            found = self.parts.outlooks.now().measures.capacity(TRANSCRIBE)
            return found.speed if found else None

        return Clocks(capacity)


def in_a_house(files: int, policy: str) -> dict[str, Any]:
    """The ten alone, and when three tenths of a bulk of `files` are done."""
    few = hollow([Random(n).uniform(*LENGTHS_S) for n in range(FEW)])
    bulk = hollow([Random(1_000 + n).uniform(*LENGTHS_S) for n in range(files)])
    warm = hollow([20.0] * 2 * SLOTS)
    settings = {"ENGINE": "echo", "SLOTS": str(SLOTS), "POLICY": policy, **ECHO}
    with throwaway_home() as home, everything_up(home, **settings) as (up, _):
        house = Tenants.to(up)
        assert isinstance(house, Tenants)
        house.took_s("warm", house.bring(house.clocks(), "warm", warm), 120)  # speeds are known
        alone = house.took_s("few-alone", house.bring(house.clocks(), "few-alone", few), 120)
        house.bring(clocks := house.clocks(), "bulk", bulk)
        while house.left("bulk") > 0.7 * files:
            time.sleep(0.2)
        beside = house.took_s("few", house.bring(clocks, "few", few), 600)
        left = house.left("bulk")
    found = {"alone_p90_s": p90(alone), "beside_p90_s": p90(beside), "bulk_left": left}
    return {"files": files, "few": FEW, "policy": policy, **found, **ratio(alone, beside)}


# -- the simulator --------------------------------------------------------------------------


def simulated(files: int, slots: int = 32) -> dict[str, Any]:
    """Calls: the ten beside a bulk, with clocks and without; and a tenant that is alone."""
    lengths_s = workloads.calls_s(Random(1), files)
    bulk = workloads.calls(lengths_s, workloads.at_once(files))
    busy_s = sum(sum(a.units) for a in bulk)
    capacity = slots * sum(a.work_s for a in bulk) / busy_s
    moments = [0.3 * busy_s / slots + n / 1000 for n in range(FEW)]
    few = workloads.calls(workloads.calls_s(Random(7), FEW), moments)
    rate = 0.95 * files * slots / busy_s
    steady = workloads.together(
        steady=workloads.calls(lengths_s, workloads.poisson(Random(2), files, rate))
    )
    both = workloads.together(bulk=bulk, few=few)
    told = {}
    for policy in POLICIES:
        alone = _responses(workloads.together(few=few), policy, slots)["few"]
        found: dict[str, Any] = {}
        for name, arrivals in (("without", both), ("with", _counted(both, capacity))):
            of = _responses(arrivals, policy, slots)
            found[name] = {"few_p90_s": p90(of["few"]), **ratio(alone, of["few"])}
            found[name]["bulk_s"] = _quantiles(of["bulk"])
        for name, arrivals in (("without", steady), ("with", _counted(steady, capacity))):
            of = _responses(arrivals, policy, slots)
            found[name]["alone_at_0.95_s"] = _quantiles(of["steady"])
        told[policy] = {"few_alone_p90_s": p90(alone), **found}
    return {"files": files, "slots": slots, "policies": told}


def _counted(arrivals: Sequence[Arrival], capacity: float) -> list[Arrival]:
    return workloads.by_equal_shares(arrivals, capacity)


def _responses(arrivals: Sequence[Arrival], policy: str, slots: int) -> dict[str, list[float]]:
    of: dict[str, list[float]] = {}
    for outcome in simulate(arrivals, parse_policy(policy), House(slots=slots)).outcomes:
        of.setdefault(outcome.job_id.partition("/")[0], []).append(outcome.response_s)
    return of


def _quantiles(took_s: Sequence[float]) -> list[float]:
    """P50, P90, P99 and the longest."""
    cuts = statistics.quantiles(took_s, n=100)
    return [round(x, 1) for x in (cuts[49], cuts[89], cuts[98], max(took_s))]


def p90(took_s: Sequence[float]) -> float:
    """Of so few the interpolated one."""
    return round(statistics.quantiles(took_s, n=10, method="inclusive")[8], 2)


def ratio(alone: Sequence[float], beside: Sequence[float]) -> dict[str, float]:
    """How many times as long the ten take."""
    return {"p90_ratio": round(p90(beside) / p90(alone), 2)}


def main() -> int:
    """Run it."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--files", type=int, help="of the bulk; 2000, simulated 3000")
    options.add_argument("--policy", default=DEFAULT_POLICY)
    options.add_argument("--simulated", action="store_true")
    options.add_argument("--json", action="store_true", help="one line of JSON and nothing else")
    given = options.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):  # leave no folder behind then either
        signal.signal(number, lambda *_: sys.exit(1))
    if given.simulated:
        found = simulated(given.files or 3_000)
        good = found["policies"][DEFAULT_POLICY]["with"]["p90_ratio"] <= 2
    else:
        found = in_a_house(given.files or 2_000, given.policy)
        good = found["p90_ratio"] <= 2
    print(json.dumps(found, indent=None if given.json else 2), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
