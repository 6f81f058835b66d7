"""Breaks a whole house for a while, then asks whether anything was lost: python -m bench.chaos

Real Postgres, real Redis and real workers of both queues, with the echo engine, while jobs come in.
Rounds of faults in an order the seed decides. First what each rule of the lease protocol is for:
Redis is emptied under live workers; its answers are lost; a worker stands still until others work
on its jobs. Then single processes are killed with all else well, and recoveries timed; processes
stand still and die, also those that would notice; then a storm in which all that parts share fails,
several things at once. In the end everything is made well, and what bench/chaos_proof.py asks must
hold.

    --seconds N     faults for so long (the whole run takes some ten seconds more)
    --seed N        another order, other victims
    --lease N       seconds; short ones make for more faults, the product's own is 15
    --without RULE  fence, nonce or reassert: take this rule of the protocol away; must fail

Prints a line a round and, last, one line of JSON: jobs, faults, kinds, lost, twice, stuck,
leftovers, recovery_p50_s and recovery_max_s (from kill -9 of a worker until each job it had in hand
may be claimed again, servers well), and more. Exits with 1 when an invariant does not hold.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import random
import shutil
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import chaos_proof
from bench.chaos_faults import KILLS, SHARED, STANDS, flushall, redis_answers_lost, stop_worker
from bench.chaos_house import House, house
from bench.chaos_jobs import Feed
from bench.chaos_proof import Leases, Verdict
from bench.chaos_striker import Heal, Strike, Striker
from bench.chaos_worker import SABOTAGE
from pipeline.steps.reclaim import GAP_S

KILL_EVERY_S, SHARED_EVERY_S = 0.9, 1.1
"""Between one fault and the next. Those of a storm overlap."""

STUCK_S = 30.0
"""With everything well and two leases gone by, whatever did not move in so long is stuck."""

SETTLED_S = 2.0
TELL_S = 5.0


class Storm:
    """Strikes, and heals when it is time."""

    def __init__(self, striker: Striker, until_s: float) -> None:
        self._striker, self._until_s = striker, until_s
        self._heals: list[tuple[float, int, Heal]] = []
        self._numbers = itertools.count()
        self.faults: Counter[str] = Counter()

    @property
    def over(self) -> bool:
        """The time for faults is up."""
        return time.monotonic() >= self._until_s

    def strike(self, kinds: Sequence[Strike], every_s: float) -> None:
        """One after the other, in an order of chance, while there is time."""
        for kind in self._striker.chance.sample(kinds, len(kinds)):
            if self.over:
                return
            if struck := kind(self._striker):
                self.faults[kind.__name__] += 1
                lasts_s, heal = struck
                at_s = time.monotonic() + lasts_s
                heapq.heappush(self._heals, (at_s, next(self._numbers), heal))
            self.rest(every_s * self._striker.chance.uniform(0.6, 1.4))

    def rest(self, seconds: float) -> None:
        """Strike at nothing for a while; heal what is due."""
        end_s = time.monotonic() + seconds
        while (now_s := time.monotonic()) < end_s:
            if self._heals and self._heals[0][0] <= now_s:
                heal = heapq.heappop(self._heals)[2]
                if (again_s := heal()) is not None:
                    heapq.heappush(self._heals, (now_s + again_s, next(self._numbers), heal))
            else:
                next_s = self._heals[0][0] if self._heals else end_s
                time.sleep(max(0.0, min(end_s, next_s) - now_s))

    def rest_until_healed(self) -> None:
        """Strike at nothing until all is healed that is not yet."""
        while self._heals:
            self.rest(0.1)

    def settle(self) -> None:
        """Heal all, now."""
        while self._heals:
            heapq.heappop(self._heals)[2]()
        self._striker.house.heal()


def play(storm: Storm, striker: Striker) -> None:
    """One round, or what there is time for of it."""
    lease_s = striker.lease_s
    striker.calm = True
    storm.strike([flushall], 0.0)
    storm.rest_until_healed()
    storm.strike([redis_answers_lost], 0.0)
    storm.rest_until_healed()
    storm.strike([stop_worker], 0.0)
    storm.rest_until_healed()
    if not storm.over:
        storm.rest(lease_s + GAP_S)  # reapers trust nothing for a lease after a pause
    storm.strike(KILLS, KILL_EVERY_S)
    storm.rest(lease_s + 2.0)  # the last kill is timed with all else well, too
    striker.calm = False
    storm.strike(STANDS, KILL_EVERY_S)
    striker.house.copy_redis(striker.house.home / "old-redis")
    storm.strike(SHARED, SHARED_EVERY_S)
    storm.settle()
    if not storm.over:
        storm.rest(lease_s + GAP_S)


def wait_for_quiet(here: House) -> list[str]:
    """What is left when nothing moves any more: nothing, or what nobody works off."""
    since_s = tell_s = time.monotonic()
    fewest: int | None = None
    while True:
        left = chaos_proof.unquiet(here)
        now_s, many = time.monotonic(), len(left) + chaos_proof.unfinished(left)
        if fewest is None or many < fewest:
            fewest, since_s = many, now_s
        if now_s - since_s > (STUCK_S + 2 * here.lease_s if left else SETTLED_S):
            return left
        if left and now_s - tell_s > TELL_S:
            print(f"well again, and there is: {', '.join(left)[:200]}", file=sys.stderr)
            tell_s = now_s
        time.sleep(0.2)


def run(given: argparse.Namespace) -> tuple[Verdict, dict[str, Any]]:
    """The whole of it; nothing of the house is left afterwards."""
    with house(
        lease_s=given.lease, without=given.without, seed=given.seed, transcribers=given.transcribers
    ) as here:
        with here.database() as c:
            c.execute(chaos_proof.WITNESS)
        feed, leases = Feed(here, given.seed), Leases(here)
        striker = Striker(here, random.Random(given.seed), feed.put_in_long)
        feed.start()
        leases.start()
        _wait_for_first(here)
        began_s = time.monotonic()
        storm = Storm(striker, began_s + given.seconds)
        while not storm.over:
            play(storm, striker)
            done = sum(storm.faults.values())
            print(f"{time.monotonic() - began_s:4.0f} s: {done} faults", file=sys.stderr)
        feed.stop()
        storm.settle()
        healed_s = time.monotonic()
        left = wait_for_quiet(here)
        quiet_s = time.monotonic() - healed_s
        leases.stop()
        verdict = chaos_proof.judge(here, feed, leases, striker.flushes)
        verdict.leftovers = [one for one in left if not one[0].isdigit()]
        figures = {**_figures(given, storm, striker, feed), "quiet_s": round(quiet_s, 1)}
        if given.logs:
            shutil.copytree(here.folder.logs, given.logs, dirs_exist_ok=True)
    verdict.leftovers += here.left_running()
    return verdict, figures


def _wait_for_first(here: House) -> None:
    end_s = time.monotonic() + 30.0
    question = "SELECT count(*) FROM jobs WHERE state = 'completed'"
    while True:
        with here.database() as c:
            if c.execute(question).fetchone()[0]:
                return
        if time.monotonic() > end_s:
            raise SystemExit("no job is completed though nothing is broken yet")
        time.sleep(0.1)


def _figures(
    given: argparse.Namespace, storm: Storm, striker: Striker, feed: Feed
) -> dict[str, Any]:
    calm = chaos_proof.recoveries(striker.house, striker.kills, calm=True)
    stormy = chaos_proof.recoveries(striker.house, striker.kills, calm=False)
    return {
        "recovery_p50_s": round(statistics.median(calm), 2) if calm else None,
        "recovery_p99_s": round(calm[int(0.99 * (len(calm) - 1))], 2) if calm else None,
        "recovery_max_s": round(calm[-1], 2) if calm else None,
        "recovered": len(calm),
        "recovery_stormy_max_s": round(stormy[-1], 2) if stormy else None,
        "uploads_refused": feed.refused,
        "ended_alone": striker.house.ended_alone,
        "lease_s": given.lease,
        "seed": given.seed,
        "faults_by_kind": dict(sorted(storm.faults.items())),
    }


def main() -> None:
    asked = argparse.ArgumentParser(prog="bench.chaos", description="Break a whole house.")
    asked.add_argument("--seconds", type=float, default=60.0)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--lease", type=float, default=1.5)
    asked.add_argument("--transcribers", type=int, default=2)
    asked.add_argument("--without", choices=tuple(SABOTAGE), default=None)
    asked.add_argument("--logs", type=Path, default=None, help="a folder to leave the logs in")
    given = asked.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        verdict, figures = run(given)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    for name in ("lost", "twice", "stuck", "leftovers", "stranded", "torn"):
        for one in getattr(verdict, name)[:5]:
            print(f"{name}: {one}", file=sys.stderr)
    faults = figures["faults_by_kind"]
    answer = {
        "jobs": verdict.jobs,
        "faults": sum(faults.values()),
        "kinds": len(faults),
        "lost": len(verdict.lost),
        "twice": len(verdict.twice),
        "stuck": len(verdict.stuck),
        "leftovers": len(verdict.leftovers),
        **figures,
        "stranded": len(verdict.stranded),
        "torn": len(verdict.torn),
        "in_live_hands": verdict.in_live_hands,
        "without": given.without,
        "caught_by": verdict.broken,
    }
    print(json.dumps(answer))
    raise SystemExit(1 if verdict.broken else 0)


if __name__ == "__main__":
    main()
