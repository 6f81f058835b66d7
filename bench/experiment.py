"""Orders of work on real parts: the same arrivals under every policy, beside the simulator.

Everything is up in a throw-away folder: Postgres, Valkey, the transcribe worker. Jobs come as their
survey would leave them (bench/arrivals.py), Poisson at `load` times the capacity, at the very same
moments under each policy; between two policies the line is empty.

vllm    One-window clips of real speech with the lengths of the workload. The capacity is measured
        first: all clips at once in the order they were drawn, jobs a second between one and four
        fifths of them. The simulator gets what each window needed in the run under fcfs
        (bench/fitted.py), so its fcfs is a fit and its other policies are predictions. fcfs runs
        once more at the end: what differs from the first is the machine's.
echo    Service times are known: what is compared is the line itself, turn for turn. Besides live
        arrivals a backlog is served, all of it in the queue before the first turn. `as_kept` is the
        rehearsal again with windows as long as they really kept a slot: what the engine and the
        machine were late is in it, what the line itself was late is not.

Times to the result are Postgres' stamps, arrival to `completed_at`. `start` is when the engine
began the job's first window, by the worker's log: a grant comes up to a window earlier.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from bench.arrivals import Arrivals, Came
from bench.clips import Clip, hollow, spoken
from bench.demo import everything_up, throwaway_home
from bench.fitted import Fit, fit
from bench.pipeline import foreign_load
from bench.reckoned import (
    AGAIN,
    Engine,
    all_told,
    figures_of,
    middle_rate,
    rehearsed,
    rounded,
    rule,
)
from bench.rehearsal import as_kept, beside, echo_units, turns_of
from pipeline.cli.simulate import read_lines
from pipeline.errors import BadRequest
from pipeline.recording import WINDOW_LIMIT_S
from pipeline.scheduling.contest import FILE_FCFS, WINDOW_FCFS, split_entries
from pipeline.scheduling.policies import Policy, parse_policy
from pipeline.scheduling.scenario import House
from pipeline.scheduling.traces import durations_s
from pipeline.scheduling.workloads import calls_s, librispeech_s, poisson, uniform_s
from pipeline.settings import DEFAULT_POLICY
from workers.vllm_engine import CPU_SLOTS, GPU_SLOTS
from workers.vllm_environment import on_gpu

LOAD = {"librispeech": 1.39, "uniform": 1.39, "burst": 1.0, "calls": 0.95}
"""Arrivals over capacity where none is asked for; 1.39: the published 25 over 18 a second."""

JOBS = {"vllm": 150, "echo": 60}
ALONE = 8
"""Clips heard one by one beforehand: what a window takes alone."""

ECHO_SLOTS = 8
ECHO_CLIP_S, ECHO_CALL_S = (0.4, 0.1), (0.1, 0.02)
"""(a window, a second of speech in it): about a second a window, which dwarfs what a claim takes.
Calls have too many windows for that: 0.7 s."""


@dataclass(frozen=True)
class Timetable:
    """Jobs, and when they come: seconds from the beginning; all at once where empty."""

    clips: Sequence[Clip]
    at_s: Sequence[float]


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """The experiment `asked` for, as `bench policies --json` prints it.

    Raises `BadRequest` for what cannot be asked.
    """
    if asked.engine == "vllm" and asked.workload == "calls":
        raise BadRequest("vLLM is given clips of one window: librispeech, uniform or burst.")
    if asked.workload not in LOAD:
        raise BadRequest(f"{asked.workload} is only simulated; here: {', '.join(LOAD)}.")
    try:
        lengths_s, note = _lengths(asked)
        names = _policies(asked)
    except ValueError as wrong:
        raise BadRequest(f"{wrong}.") from None
    engine = _vllm if asked.engine == "vllm" else _echo
    return engine(asked, lengths_s, names) | note


def _lengths(asked: argparse.Namespace) -> tuple[list[float], dict[str, Any]]:
    """Seconds of speech of each job, in order of arrival, and what is to be said of them."""
    rng, count = Random(asked.seed), asked.jobs or JOBS[asked.engine]
    if asked.workload == "calls":
        return calls_s(rng, count), {"lengths": "lognormal"}
    if asked.workload == "uniform":
        return uniform_s(rng, count), {"lengths": "uniform"}
    if asked.durations is None:
        drawn = [min(length_s, WINDOW_LIMIT_S) for length_s in librispeech_s(rng, count)]
        return drawn, {"lengths": "lognormal fit"}
    measured = read_lines(asked.durations, durations_s)
    short = [length_s for length_s in measured if length_s <= WINDOW_LIMIT_S]
    told = {"lengths": "measured", "left_out_above_30_s": len(measured) - len(short)}
    return librispeech_s(rng, count, short), told


# -- the two engines ------------------------------------------------------------------------


def _vllm(
    asked: argparse.Namespace, lengths_s: Sequence[float], names: Sequence[str]
) -> dict[str, Any]:
    clips = spoken(lengths_s, asked.seed)
    slots = asked.slots or (GPU_SLOTS if on_gpu() else CPU_SLOTS)
    settings = {"ENGINE": "vllm", "MODEL": asked.model, "SLOTS": str(slots), "LOG_LEVEL": "debug"}
    with throwaway_home() as home, everything_up(home, **settings) as (up, _):
        arrivals = Arrivals.to(up)
        arrivals.at_once(clips[: len(clips) // 3])  # an engine is faster after its first windows
        alone = [came for clip in clips[:ALONE] for came in arrivals.at_once([clip])]
        arrivals.follow(Policy("fcfs"), "the capacity is measured")
        capacity = middle_rate([came.ended_s for came in arrivals.at_once(clips)])
        timetable = Timetable(clips, _moments(asked, len(clips), capacity))
        runs = {name: _serve(arrivals, name, timetable) for name in [*names, WINDOW_FCFS + AGAIN]}
    fitted_to, (first, _) = next(iter(runs.items()))
    fitted = _fitted([*alone, *first])
    alone_s = {one.clip.name: fitted.alone_s[one.job_id, 0] for one in first}
    engine = Engine(House(slots=slots, pace=fitted.pace), lambda one: (alone_s[one.clip.name],))
    service = {"sharing": fitted.sharing, "r2": fitted.r2, "fitted_to": fitted_to}
    service |= {"fixed_s": fitted.fixed_s, "per_second_s": fitted.per_second_s}
    return {
        **_asked_for(asked, slots, timetable, capacity),
        "model": asked.model,
        "service": rounded(service),
        "policies": all_told(runs, engine),
        "baselines": {"file-fcfs": WINDOW_FCFS, "window-fcfs": WINDOW_FCFS},  # a file is a window
        "default": _default(names),
    }


def _fitted(came: Sequence[Came]) -> Fit:
    lengths_s = {(one.job_id, 0): one.clip.plan.speech_s for one in came}
    return fit(turns_of(came), lengths_s)


def _echo(
    asked: argparse.Namespace, lengths_s: Sequence[float], names: Sequence[str]
) -> dict[str, Any]:
    clips, slots = hollow(lengths_s), asked.slots or ECHO_SLOTS
    fixed_s, per_second_s = ECHO_CALL_S if asked.workload == "calls" else ECHO_CLIP_S
    service = {"ECHO_FIXED_S": str(fixed_s), "ECHO_PER_SECOND_S": str(per_second_s)}
    settings = {"ENGINE": "echo", "SLOTS": str(slots), "LOG_LEVEL": "debug", **service}
    engine = Engine(House(slots=slots), echo_units(fixed_s, per_second_s))
    windows = [window for clip in clips for window in clip.plan.windows]
    busy_s = sum(fixed_s + per_second_s * window.length_s for window in windows)
    capacity = slots * len(clips) / busy_s
    timetable = Timetable(clips, _moments(asked, len(clips), capacity))
    backlog = clips[: len(clips) // 2]
    waited_s = sorted(poisson(Random(asked.seed), len(backlog), capacity), reverse=True)
    stood = {}
    with throwaway_home() as home, everything_up(home, **settings) as (up, _):
        arrivals = Arrivals.to(up)
        runs = {name: _serve(arrivals, name, timetable) for name in names}
        for name in names:
            arrivals.follow(rule(name), "an experiment")
            came = arrivals.at_once(backlog, waited_s)
            stood[name] = beside(came, rule(name), rehearsed(came, name, engine))
    policies = all_told(runs, engine)
    for name, (came, _) in runs.items():
        kept = Engine(engine.house, as_kept(came, slots))
        policies[name]["as_kept"] = beside(came, rule(name), rehearsed(came, name, kept))
    first, _ = runs[names[0]]
    by_file = rehearsed(first, WINDOW_FCFS, Engine(House(slots=slots, level="file"), engine.units))
    return {
        **_asked_for(asked, slots, timetable, capacity),
        "service": {"fixed_s": fixed_s, "per_second_s": per_second_s, "sharing": 0.0},
        "policies": {
            **policies,
            FILE_FCFS: {**figures_of(by_file.outcomes, first, engine), "only_simulated": True},
        },
        "backlog": stood,
        "baselines": {"file-fcfs": FILE_FCFS, "window-fcfs": WINDOW_FCFS},
        "default": _default(names),
    }


# -- one run --------------------------------------------------------------------------------


def _serve(
    arrivals: Arrivals, name: str, timetable: Timetable
) -> tuple[list[Came], dict[str, float]]:
    """All jobs under a policy; also the share of the machine that somebody else used."""
    arrivals.follow(rule(name), "an experiment")
    with foreign_load([os.getpid()]) as others:  # the house is a child of ours
        if timetable.at_s:
            served = arrivals.as_they_come(timetable.clips, timetable.at_s)
        else:
            served = arrivals.at_once(timetable.clips)
    return served, {"foreign": others.share}


def _moments(asked: argparse.Namespace, jobs: int, capacity: float) -> list[float]:
    """When jobs come; nothing for all at once."""
    if asked.workload == "burst":
        return []
    return poisson(Random(asked.seed), jobs, _rate(asked, capacity))


def _rate(asked: argparse.Namespace, capacity: float) -> float:
    """Arrivals a second."""
    return float(asked.rate or capacity * (asked.load or LOAD[asked.workload]))


def _policies(asked: argparse.Namespace) -> list[str]:
    """Names as asked for, fcfs first: others are compared with it, and the engine is fitted to it.

    Raises ValueError for what is no policy.
    """
    names = [str(parse_policy(word)) for word in split_entries(asked.policies)]
    return list(dict.fromkeys([WINDOW_FCFS, *names]))


def _default(names: Sequence[str]) -> str:
    """The policy an installation begins with, or where it was not run the last that was."""
    return DEFAULT_POLICY if DEFAULT_POLICY in names else names[-1]


# -- what it comes to -----------------------------------------------------------------------


def _asked_for(
    asked: argparse.Namespace, slots: int, timetable: Timetable, capacity: float
) -> dict[str, Any]:
    rate = _rate(asked, capacity) if timetable.at_s else None
    return {
        "engine": asked.engine,
        "workload": asked.workload,
        "jobs": len(timetable.clips),
        "windows": sum(len(clip.plan.windows) for clip in timetable.clips),
        "speech_s": round(sum(clip.plan.speech_s for clip in timetable.clips), 1),
        "classes": None,
        "seeds": 1,
        "seed": asked.seed,
        "workers": 1,
        "slots": slots,
        "load": rate and round(rate / capacity, 3),
        "capacity_per_s": round(capacity, 3),
        "rate_per_s": rate and round(rate, 3),
    }
