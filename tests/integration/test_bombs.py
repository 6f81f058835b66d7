"""Small files that unfold to something huge: each reading is stopped within stated limits.

`python -m bench.bombs` prints memory and time of each, with mutagen's beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import bombs
from bench.bomb_files import BOMBS
from bench.bombs import (
    PROBE_MEMORY_MB,
    PROBE_S,
    SURVEY_MEMORY_MB,
    SURVEY_S,
    MeasuredProber,
    Taken,
)
from pipeline import errors

LONG = {"ten hours.flac", "nine hours.opus", "eleven hours.amr", "100,000 chains.ogg"}
"""They take long to make, or to survey: hours of sound, up to the limit."""
LARGE = {"64 channels.wav"}
CODES = {kind.code for kind in errors.RecordingRefused.__subclasses__()}


@pytest.fixture(scope="module")
def prober() -> Iterator[MeasuredProber]:
    found = MeasuredProber()
    yield found
    found.close()


@pytest.fixture
def bomb(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    path = tmp_path / request.param
    BOMBS[request.param](path)
    yield path
    path.unlink()


def each(names: set[str]) -> list[str]:
    return [name for name in BOMBS if name in names]


def within(taken: Taken, memory_mb: float, cpu_s: float) -> None:
    """It has a length or a code, and took no more than it may."""
    assert " s" in taken.outcome or taken.outcome in CODES, taken
    assert 1 < taken.memory_mb <= memory_mb, taken
    assert taken.cpu_s <= cpu_s, taken


@pytest.mark.parametrize(
    "bomb", each(set(BOMBS) - {"ten hours.flac", "eleven hours.amr"}), indirect=True
)
def test_a_bomb_is_probed_within_its_limits(prober: MeasuredProber, bomb: Path) -> None:
    within(bombs.probe(prober, bomb), PROBE_MEMORY_MB, PROBE_S)


@pytest.mark.parametrize("bomb", each(set(BOMBS) - LONG - LARGE), indirect=True)
def test_a_bomb_is_surveyed_within_its_limits(prober: MeasuredProber, bomb: Path) -> None:
    within(bombs.survey(prober, bomb), SURVEY_MEMORY_MB, SURVEY_S)


@pytest.mark.slow
@pytest.mark.timeout(2_000)
@pytest.mark.parametrize("bomb", each(LONG | LARGE), indirect=True)
def test_hours_of_sound_are_surveyed_within_their_limits(
    prober: MeasuredProber, bomb: Path
) -> None:
    within(bombs.probe(prober, bomb), PROBE_MEMORY_MB, PROBE_S)
    within(bombs.survey(prober, bomb), SURVEY_MEMORY_MB, SURVEY_S)


@pytest.mark.parametrize(
    ("bomb", "outcome"),
    [
        ("nine hours.opus", "too_long"),
        ("100,000 chains.ogg", "6000.00 s by scan"),
        ("million chunks.wav", "20.00 s by scan"),
        ("million blocks.flac", "20.00 s by scan"),
        ("65,535 channels.wav", "damaged"),
        ("1 Hz.wav", "damaged"),
        ("4 GHz.wav", "damaged"),
        ("50,000 deep.m4a", "damaged"),
        ("times jump.ogg", "60.00 s by decode"),
        ("384 kHz.wav", "10.00 s by header"),
    ],
    indirect=["bomb"],
)
def test_a_bomb_around_real_sound_does_not_hide_it(
    prober: MeasuredProber, bomb: Path, outcome: str
) -> None:
    assert bombs.probe(prober, bomb).outcome == outcome


def test_what_a_reading_took_is_measured(prober: MeasuredProber, tmp_path: Path) -> None:
    """A measure that always says little would let every bomb pass."""
    BOMBS["ordinary.wav"](tmp_path / "small.wav")
    BOMBS["cover of 256 MB.m4a"](tmp_path / "large.m4a")
    small, large = (bombs.probe(prober, tmp_path / n) for n in ("small.wav", "large.m4a"))
    assert large.memory_mb > small.memory_mb + 200
    found = {"a": {"probe": {"memory_mb": PROBE_MEMORY_MB + 1, "cpu_s": 0.0}}}
    assert bombs.exceeded(found) == ["a: probe took 601 MB and 0.0 s"]
