"""Damaged files through the real sandbox: nothing crashes, nothing hangs, every answer has a type.

A minute of it here, 100,000 files in `make verify`; `python -m bench.fuzz` runs it by hand and
makes any single file again.
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.fuzz import case, fuzz, insane_probe, insane_survey
from bench.mutations import FIELDS, MUTATIONS, mutated
from bench.seeds import digest, seeds
from pipeline.errors import LimitExceeded, ParserCrashed
from pipeline.recording import Piece, Plan, Probe, SurveyReport, Window
from tests.sounds import encoded, tone, wav

ROOT = Path(__file__).resolve().parents[2]
SEED = 20_261_130


def right(found: dict[str, Any]) -> None:
    """Every file answered by a type, sanely and in time, by a server that lived through it."""
    assert not found["wrong"], json.dumps(found["wrong"][:5], indent=1)
    crashed = [each for each in found["stopped"] if ParserCrashed.code in each["what"]]
    assert not crashed, json.dumps(crashed[:5], indent=1)
    exhausted = [each for each in found["stopped"] if LimitExceeded.code in each["what"]]
    assert len(exhausted) <= 0.01 * found["files"] + 3, json.dumps(exhausted[:5], indent=1)


@pytest.mark.timeout(240)
def test_half_a_minute_of_damaged_files_breaks_nothing() -> None:
    found = fuzz(SEED, itertools.count(), threads=3, seconds=30)
    right(found)
    assert found["files"] >= 200, "so few that nothing is shown"
    assert len(found["outcomes"]) >= 10, "files that all end alike are not damaged in enough ways"


@pytest.mark.slow
@pytest.mark.timeout(3 * 3_600)
def test_a_hundred_thousand_damaged_files_break_nothing() -> None:
    found = fuzz(SEED, iter(range(100_000)), threads=3, seconds=3 * 3_600)
    right(found)
    assert found["files"] == 100_000
    assert len(found["by_seed"]) == len(seeds())


def test_file_n_of_a_seed_is_always_the_same() -> None:
    made = [case(1, number, seeds()) for number in range(200)]
    assert [case(1, number, seeds()) for number in range(200)] == made
    assert len({each.content for each in made}) > 190
    assert case(2, 0, seeds()) != made[0]
    assert {name for each in made for name in each.mutations} == set(MUTATIONS)


def test_another_process_makes_the_same_files() -> None:
    """A number in a report must mean the same file tomorrow."""
    again = "from bench.seeds import digest, seeds; print(digest(seeds()))"
    told = subprocess.run([sys.executable, "-c", again], cwd=ROOT, capture_output=True, text=True)
    assert told.stdout.strip() == digest(seeds()), told.stderr


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_damages_and_lets_a_file_of_any_size_be(name: str) -> None:
    apply, _ = MUTATIONS[name]
    whole = encoded(tone(1), "ogg", "libopus", 48_000)
    chance = random.Random(name)
    assert any(apply(bytearray(whole), wav(tone(1)), chance) != whole for _ in range(20))
    for size in (1, 2, 3, 5, 27, 64):
        for _ in range(50):
            apply(bytearray(whole[:size]), b"", chance)


def test_the_fields_of_headers_are_found_in_whole_files() -> None:
    """A table of places that match nothing would damage nothing."""
    whole = [seed.content[:200_000] for seed in seeds()]
    for kind in ("wav", "mp3", "mp4", "ogg", "flac", "matroska", "aiff", "caf", "au"):
        unseen = {tag for tag, _, _ in FIELDS[kind] if not any(tag in each for each in whole)}
        assert len(unseen) <= len({tag for tag, _, _ in FIELDS[kind]}) / 3, (kind, unseen)


def test_a_file_of_one_byte_can_be_damaged_in_every_way() -> None:
    done = [mutated(b"x", b"", random.Random(number))[1] for number in range(300)]
    assert all(done)
    assert {name for names in done for name in names} == set(MUTATIONS)


PROBE = Probe(1.0, "scan", False, "wav", "pcm_s16le", 8_000, 1)


@pytest.mark.parametrize(
    ("changed", "sane"),
    [
        ({}, True),
        ({"duration_s": 0.0}, False),
        ({"duration_s": -1.0}, False),
        ({"duration_s": float("nan")}, False),
        ({"duration_s": float("inf")}, False),
        ({"duration_s": 14_401.0}, False),
        ({"source": "guess"}, False),
        ({"sample_rate_hz": 0}, False),
        ({"sample_rate_hz": 87_236_699}, False),
        ({"channels": 0}, False),
        ({"channels": 65_535}, False),
        ({"codec": ""}, False),
    ],
)
def test_nonsense_of_a_probe_is_noticed(changed: dict[str, Any], sane: bool) -> None:
    assert (insane_probe(replace(PROBE, **changed)) is None) is sane


def surveyed(plan: Plan) -> SurveyReport:
    return SurveyReport(plan, 1, 0, "wav", "pcm_s16le", 1)


WINDOW = Window(0, 0, 0, 16_000, (Piece(0.0, 1.0, 1.0),))
PLAN = Plan(3.0, 1.0, ("mono",), "one channel", (WINDOW,))


@pytest.mark.parametrize(
    ("plan", "size_bytes", "sane"),
    [
        (PLAN, 32_000, True),
        (PLAN, 31_998, False),
        (replace(PLAN, duration_s=0.0), 32_000, False),
        (replace(PLAN, speech_s=float("nan")), 32_000, False),
        (replace(PLAN, channels=()), 32_000, False),
        (replace(PLAN, windows=(replace(WINDOW, channel=1),)), 32_000, False),
        (replace(PLAN, windows=(replace(WINDOW, sample_count=480_001),)), 960_002, False),
        (replace(PLAN, windows=(replace(WINDOW, pieces=(Piece(0.0, 9.0, 1.0),)),)), 32_000, False),
    ],
)
def test_nonsense_of_a_survey_is_noticed(plan: Plan, size_bytes: int, sane: bool) -> None:
    assert (insane_survey(surveyed(plan), size_bytes) is None) is sane


def test_a_run_without_the_corpus_has_every_format_too() -> None:
    made = [seed for seed in seeds() if seed.name.startswith("made/")]
    assert len(made) >= 20
