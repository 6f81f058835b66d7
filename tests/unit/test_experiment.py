"""Experiments on real parts: what is asked of them, and what is made of their windows."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from bench import experiment
from bench.experiment import run
from bench.fitted import fit
from bench.picks import Begun
from bench.reckoned import middle_rate
from pipeline.errors import BadRequest


def asked(**given: object) -> argparse.Namespace:
    wanted = {"engine": "vllm", "workload": "librispeech", "jobs": 3, "seed": 1, "policies": "sjf"}
    rest = {"durations": None, "load": None, "rate": None, "slots": None, "model": "tiny.en"}
    return argparse.Namespace(**{**wanted, **rest, **given})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"workload": "calls"}, "one window"),
        ({"workload": "day"}, "only simulated"),
        ({"policies": "fcfs,best"}, "'best' is not a policy"),
        ({"jobs": 3, "durations": "two"}, "3 lengths are wanted and there are 2"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_starts(
    tmp_path: Path, given: dict[str, object], why: str
) -> None:
    two = tmp_path / "two.tsv"
    two.write_text("# of which one is too long for a window\nid\tduration_s\na\t5\nb\t7\nc\t31\n")
    if given.get("durations"):
        given = {**given, "durations": two}
    with pytest.raises(BadRequest, match=why):
        run(asked(**given))


def test_fcfs_is_always_there_and_first_and_nothing_runs_twice() -> None:
    assert experiment._policies(asked(policies="hrrn(2.5),sjf,fcfs,sjf")) == [
        "fcfs",
        "hrrn(2.5)",
        "sjf",
    ]


def test_the_capacity_is_taken_from_the_middle_of_a_run() -> None:
    # A slow start, two a second from the second to the ninth, a slow end: jobs 3 to 9 in 3 s.
    assert middle_rate([9.0, 10.0, 10.5, 11.0, 11.5, 12.0, 12.5, 13.0, 13.5, 20.0]) == 2.0


@pytest.mark.parametrize("sharing", [0.0, 0.25, 1.0])
def test_the_fit_finds_how_an_engine_was_made(sharing: float) -> None:
    # Windows of 1 + 0.1 s each second of speech, each alone, then eight beside each other.
    lengths_s = {(f"job-{n}", 0): 2.0 + 3 * n for n in range(8)}
    windows, at_s = [], 100.0
    for turn, ((job_id, unit), length_s) in enumerate(lengths_s.items()):
        windows.append(Begun(job_id, unit, turn, at_s, at_s, at_s + 1 + 0.1 * length_s))
        at_s += 10.0
    together = {(f"{job_id}-again", 0): length_s for (job_id, _), length_s in lengths_s.items()}
    clock, inside = 0.0, len(together)  # the shortest leave first, and the rest go on faster
    for turn, ((job_id, unit), length_s) in enumerate(together.items()):
        at_s += (1 + 0.1 * length_s - clock) * (1 + sharing * (inside - 1))
        clock, inside = 1 + 0.1 * length_s, inside - 1
        windows.append(Begun(job_id, unit, 8 + turn, 180.0, 180.0, at_s))
    found = fit(windows, lengths_s | together)
    assert found.sharing == pytest.approx(sharing)
    assert (found.fixed_s, found.per_second_s) == pytest.approx((1.0, 0.1))
    assert found.r2 == pytest.approx(1.0)
    assert found.alone_s["job-4-again", 0] == pytest.approx(1 + 0.1 * 14)
    assert found.pace(5) == pytest.approx(1 / (1 + 4 * sharing))
