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
from io import BytesIO
from typing import Any

import av
import numpy as np

from bench.answers import Run, measure
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
GOAL_ERROR, GOAL_HELD = 0.20, 0.85
"""The most a median error may be; the part of forecasts whose job must end before its P90."""


def lengths(jobs: int, seed: int, call_s: float) -> list[float]:
    """Seconds of speech: utterances and calls of median `call_s`, mixed."""
    rng = random.Random(seed)
    found = []
    for n in range(jobs):
        call = n % 2
        drawn = rng.lognormvariate(math.log(call_s if call else 6.5), 0.9 if call else 0.6)
        found.append(min(drawn, 1800.0 if call else 35.0))
    return found


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
        _write(run, given.samples)
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


def _write(run: Run, path: str) -> None:
    """A line of JSON for each forecast, at the end of a file."""
    with open(path, "a", encoding="utf-8") as file:
        for sample in run.samples:
            truth_s = run.ends_s[sample.job_id] - sample.at_s
            told = vars(sample.times) if sample.times else {}
            file.write(json.dumps({"state": sample.state, **told, "truth_s": truth_s}) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
