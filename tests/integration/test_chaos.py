"""A whole house is broken for a while; what must hold is asked by bench/chaos_proof.py."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

KEYS = ("jobs", "faults", "kinds", "lost", "twice", "stuck", "leftovers")


def chaos(*words: str) -> tuple[int, dict[str, Any], str]:
    """(exit code, the last line, what else was said) of a run."""
    ran = subprocess.run(
        [sys.executable, "-m", "bench.chaos", *words], capture_output=True, text=True, check=False
    )
    lines = ran.stdout.strip().splitlines()
    return ran.returncode, json.loads(lines[-1]) if lines else {}, ran.stderr


def test_nothing_is_lost_and_nothing_accepted_twice_when_everything_fails_in_turn() -> None:
    code, told, said = chaos("--seconds", "45", "--seed", "1")
    assert [told.get(name) for name in KEYS[3:]] == [0, 0, 0, 0], said
    assert code == 0, (told, said)
    assert told["kinds"] >= 10
    assert told["jobs"] >= 100
    assert told["recovered"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "caught_by"),
    [("fence", "twice"), ("nonce", "stranded"), ("reassert", "torn")],
)
def test_without_a_rule_of_the_protocol_the_run_fails(rule: str, caught_by: str) -> None:
    code, told, said = chaos("--seconds", "60", "--seed", "1", "--without", rule)
    assert code == 1, (told, said)
    assert caught_by in told["caught_by"]


def test_every_rule_that_can_be_taken_away_is_found_where_it_stands() -> None:
    take = "from bench.chaos_worker import SABOTAGE\nfor rule in SABOTAGE.values(): rule()"
    told = subprocess.run([sys.executable, "-c", take], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
