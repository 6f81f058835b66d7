"""How good forecasts are: every job's ETA, asked again and again under load, against the truth.

    python -m bench.eta                              jobs put straight into `surveyed`
    python -m bench.eta --line whole --policy sjf    uploads through every part

A third of the jobs comes at once, the others at `--load` of the speed measured. Half are as long as
LibriSpeech's utterances, half as calls (lognormal). Prints one line of JSON for each policy: the
error of a forecast is |eta_s - truth| / truth, and it held when truth <= eta_p90_s. The house is
new, so calibration begins with what is shipped. The engine is `echo`; all else is real. Fails when
a goal is missed: median error <= GOAL_ERROR, and GOAL_HELD of all forecasts held.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
import uuid
import wave
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import av
import numpy as np
from sqlalchemy import text

from pipeline.parts import Parts, open_parts
from pipeline.queue.redis_queue import RedisQueue, connect
from pipeline.scheduling.policies import Waiting, order_key, pairs, parse_policy
from pipeline.scheduling.work import bucket_work_s, predicted_work_s
from pipeline.settings import DEFAULT_POLICY, read_settings
from pipeline.steps.forecast import forecast_job, look
from pipeline.steps.forecast.told import Times
from pipeline.store.forecasts import calibrated
from pipeline.store.session import transaction
from tests.journey.house import RECORDINGS, House, house
from tests.lines import surveyed_job

ENGINE = {"ENGINE": "echo", "ECHO_FIXED_S": "0.1", "ECHO_PER_SECOND_S": "0.02", "SLOTS": "8"}
WINDOW_S = 27.0
ASKED = 8
"""Forecasts asked for at each look: enough, and not so many that asking is the load."""
TRUTH_LEAST_S = 0.1
"""A job that ends sooner is no question any more."""

GOAL_ERROR, GOAL_HELD = 0.20, 0.85
"""The most a median error may be; the part of forecasts whose job must end before its P90."""

Ask = Callable[[str], Times | None]


@dataclass(frozen=True)
class Sample:
    """One answer."""

    job_id: str
    at_s: float
    """Postgres time."""
    times: Times | None
    state: str
    """Where the job stood."""


@dataclass
class Run:
    """One load: what was asked, and when each job ended."""

    samples: list[Sample] = field(default_factory=list)
    ends_s: dict[str, float] = field(default_factory=dict)

    def told(self, *states: str) -> list[tuple[Times, float]]:
        """(what was said, the truth) of all forecasts, or only of jobs in some states."""
        return [
            (sample.times, truth_s)
            for sample in self.samples
            if sample.times is not None
            and (not states or sample.state in states)
            and (truth_s := self.ends_s[sample.job_id] - sample.at_s) > TRUTH_LEAST_S
        ]

    def errors(self, *states: str) -> list[float]:
        """Relative errors of P50s."""
        return [abs(times.p50_s - truth_s) / truth_s for times, truth_s in self.told(*states)]

    def held(self, *states: str) -> float:
        """Part of the forecasts whose job ended before its P90."""
        told = self.told(*states)
        return sum(truth_s <= times.p90_s for times, truth_s in told) / max(1, len(told))

    def states(self) -> list[str]:
        """Where jobs stood when they were asked for."""
        return sorted({sample.state for sample in self.samples if sample.times is not None})

    def verdict(self) -> dict[str, Any]:
        """All figures."""
        errors = self.errors()
        return {
            "jobs": len(self.ends_s),
            "forecasts": len(errors),
            "without_eta": sum(sample.times is None for sample in self.samples),
            "median_error": round(statistics.median(errors), 3),
            "p90_error": round(statistics.quantiles(errors, n=10)[8], 3),
            "before_p90": round(self.held(), 3),
            "median_eta_over_truth": _median(t.p50_s / truth_s for t, truth_s in self.told()),
            "median_p90_over_p50": _median(t.p90_s / t.p50_s for t, _ in self.told() if t.p50_s),
            "by_state": {
                state: {
                    "forecasts": len(self.told(state)),
                    "median_error": _median(self.errors(state)),
                    "before_p90": round(self.held(state), 3),
                }
                for state in self.states()
            },
        }


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return round(statistics.median(found), 3) if found else None


def lengths(jobs: int, seed: int, call_s: float) -> list[float]:
    """Seconds of speech: utterances and calls of median `call_s`, mixed."""
    rng = random.Random(seed)
    found = []
    for n in range(jobs):
        call = n % 2
        drawn = rng.lognormvariate(math.log(call_s if call else 6.5), 0.9 if call else 0.6)
        found.append(min(drawn, 1800.0 if call else 35.0))
    return found


def measure(
    parts: Parts,
    submits: list[Callable[[], str]],
    pause_s: Callable[[], float],
    ask: Ask,
    *,
    burst: int,
    every_s: float,
    seed: int = 1,
) -> Run:
    """Submit `burst` jobs at once and the others `pause_s()` apart; ask every `every_s` seconds."""
    run, rng = Run(), random.Random(seed)
    mine: set[str] = set()
    due_s = asked_s = time.monotonic()
    while True:
        now_s = time.monotonic()
        while submits and (len(mine) < burst or now_s >= due_s):
            mine.add(submits.pop(0)())
            due_s = now_s + pause_s() if len(mine) >= burst else now_s
        if now_s >= asked_s:
            asked_s = now_s + every_s
            live = _note_ends(parts, mine, run)
            for job_id, state, db_s, read_s in rng.sample(live, min(ASKED, len(live))):
                answer, at_s = ask(job_id), db_s + time.monotonic() - read_s
                run.samples.append(Sample(job_id, at_s, answer, state))
            if not submits and not live:
                break
        time.sleep(0.01)
    run.samples = [sample for sample in run.samples if sample.job_id in run.ends_s]
    return run


def _note_ends(parts: Parts, mine: set[str], run: Run) -> list[tuple[str, str, float, float]]:
    """(id, state, Postgres' time, ours) of each job that has not ended."""
    query = "SELECT id, state, extract(epoch FROM completed_at) AS ended, "
    query += "extract(epoch FROM clock_timestamp()) AS now FROM jobs"
    with transaction(parts.store) as c:
        rows = [row for row in c.execute(text(query)) if str(row.id) in mine]
    read_s = time.monotonic()
    run.ends_s |= {str(row.id): float(row.ended) for row in rows if row.ended is not None}
    return [(str(r.id), r.state, float(r.now), read_s) for r in rows if r.ended is None]


def wrong_places(redis_url: str, policy: str, jobs: int = 300) -> int:
    """Of `jobs` waiting jobs: positions or work ahead that a brute-force search finds wrong."""
    queue, rng = RedisQueue(connect(redis_url), f"bench-{uuid.uuid4().hex}"), random.Random(policy)
    now_ms, rule = queue.time_ms(), parse_policy(policy)
    crowd = [
        Waiting(f"job-{n:05d}", rng.randrange(30, 130), now_ms - rng.randrange(3_600_000))
        for n in range(jobs)
    ]
    queue.enqueue(crowd)
    order = sorted(crowd, key=lambda job: order_key(job, pairs(rule), now_ms))
    wrong, before_s = 0, 0.0
    for number, (job, ahead) in enumerate(
        zip(order, queue.order.ahead(order, rule, now_ms), strict=True)
    ):
        found_s = sum(bucket_work_s(b) * count for b, count in ahead.by_bucket.items())
        wrong += ahead.position != number + 1 or abs(found_s - before_s) > 1e-6 * before_s
        before_s += bucket_work_s(job.bucket)
    queue.withdraw([job.job_id for job in crowd])
    return wrong


# -- ways in --------------------------------------------------------------------------------


def put_surveyed(parts: Parts, length_s: float) -> str:
    """A job that waits for the engine; its packed speech is a file without content."""
    windows = max(1, math.ceil(length_s / WINDOW_S))
    return surveyed_job(parts, windows, length_s / windows, hollow=True)


def upload(to: House, speech: Any, length_s: float) -> str:
    """A recording through the front door."""
    file = BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(speech[0])
        out.writeframes(np.resize(speech[1], int(length_s * speech[0])).tobytes())
    file.name = f"{length_s:.1f}s.wav"
    place = to.root / file.name
    place.write_bytes(file.getvalue())
    (job_id,) = to.upload(place, "eta").values()
    place.unlink()
    return job_id


def _speech() -> tuple[int, Any]:
    """Sample rate and samples of somebody who talks."""
    resampler = av.AudioResampler(format="s16", layout="mono", rate=8000)
    with av.open(str(RECORDINGS / "long_call.mp3")) as call:
        frames = [r for frame in call.decode(audio=0) for r in resampler.resample(frame)]
    return 8000, np.concatenate([frame.to_ndarray()[0] for frame in frames])


# -- the bench ------------------------------------------------------------------------------


def main() -> int:
    """Run it; the exit code is 0 when every goal is reached and every place is right."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--policy", action="append", help="several when absent")
    options.add_argument("--line", choices=("surveyed", "whole"), default="surveyed")
    options.add_argument("--jobs", type=int, default=300)
    options.add_argument("--load", type=float, default=0.9)
    options.add_argument("--call-s", type=float, default=120.0, help="median length of a call")
    options.add_argument("--every-s", type=float, default=0.5)
    options.add_argument("--slow", type=float, default=1.0, help="times the engine's time a window")
    options.add_argument("--samples", help="file for all forecasts: state, P50, P90, truth")
    given = options.parse_args()
    engine = {k: str(float(v) * given.slow) if "ECHO" in k else v for k, v in ENGINE.items()}
    good = True
    with house(**engine) as up:
        urls = {"DATABASE_URL": up.up["database_url"], "REDIS_URL": up.up["redis_url"]}
        env = {f"FAIRSCRIBE_{k}": v for k, v in {**urls, "HOME": str(up.home)}.items()}
        parts = open_parts(read_settings(env))
        for policy in given.policy or [DEFAULT_POLICY, "sjf", "fcfs"]:
            up.cli("policy", policy)
            row = _one(up, parts, given, policy)
            print(json.dumps(row), flush=True)
            good = good and row["good"]
        parts.store.dispose()
    return 0 if good else 1


def _one(up: House, parts: Parts, given: Any, policy: str) -> dict[str, Any]:
    sizes = lengths(given.jobs, seed=5, call_s=given.call_s)
    whole, speech, rng = given.line == "whole", _speech(), random.Random(7)

    def submit(length_s: float) -> str:
        return upload(up, speech, length_s) if whole else put_surveyed(parts, length_s)

    def ask(job_id: str) -> Times | None:
        if not whole:
            return forecast_job(parts, job_id).times
        job = up.job(job_id)
        return None if job["eta_s"] is None else Times(job["eta_s"], job["eta_p90_s"])

    work = {
        "transcribe": statistics.mean(predicted_work_s(s, None, "en") for s in sizes),
        "survey": statistics.mean(sizes),
    }

    def pause_s() -> float:
        outlook = look(parts)
        speeds = [
            sum(w.speed or 0.0 for w in outlook.measures.speeds[stage]) / mean
            for stage, mean in work.items()
            if whole or stage == "transcribe"
        ]
        slowest = min(speeds)
        return rng.expovariate(given.load * slowest) if slowest else 0.5

    began_s = time.monotonic()
    run = measure(
        parts,
        [lambda s=s: submit(s) for s in sizes],  # type: ignore[misc]
        pause_s,
        ask,
        burst=given.jobs // 3,
        every_s=given.every_s,
    )
    if given.samples:
        with open(given.samples, "a", encoding="utf-8") as file:
            for sample in run.samples:
                truth_s = run.ends_s[sample.job_id] - sample.at_s
                told = vars(sample.times) if sample.times else {}
                file.write(json.dumps({"state": sample.state, **told, "truth_s": truth_s}) + "\n")
    found = run.verdict()
    wrong = wrong_places(up.up["redis_url"], policy)
    reached = found["median_error"] <= GOAL_ERROR and found["before_p90"] >= GOAL_HELD
    with transaction(parts.store) as c:
        kept = [vars(kind) for kind in calibrated(c)]
    return {
        "line": given.line,
        "policy": policy,
        **found,
        "wrong_places": wrong,
        "kept_by_the_service": kept,
        "seconds": round(time.monotonic() - began_s, 1),
        "good": reached and not wrong,
    }


if __name__ == "__main__":
    raise SystemExit(main())
