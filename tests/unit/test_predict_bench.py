"""The measurement of predictions measures what it says: an engine of known times is heard."""

from __future__ import annotations

import asyncio

import pytest

from bench.foretold import Job, by_learned, by_speech, crossed, summary, told
from bench.predict import alone, shared
from pipeline.recording import SAMPLE_RATE_HZ
from pipeline.scheduling.learning import Done
from tests.lines import plan_of_windows
from workers.echo_engine import EchoEngine


def jobs() -> list[Job]:
    """Twelve recordings of one to four windows of half a second to two and a half."""
    made = []
    for n in range(12):
        windows, window_s = n % 4 + 1, 0.5 * (n % 5 + 1)
        plan = plan_of_windows(windows, window_s)
        pcm = [b"\1\0" * int(window_s * SAMPLE_RATE_HZ)] * windows
        made.append(Job(f"{n}.wav", "en" if n else "de", "echo" if n else None, plan, pcm))
    return made


def test_an_engine_of_known_times_is_foretold_alone_and_in_a_full_batch() -> None:
    async def story() -> dict[str, object]:
        engine = EchoEngine(slots=4, fixed_s=0.01, per_second_s=0.03)
        await engine.start()
        mine = jobs()
        ready = [[await engine.prepare(p, language=j.language) for p in j.pcm] for j in mine]
        runs = {"alone": await alone(engine, mine, ready)}
        runs["shared"] = await shared(engine, mine, ready)
        return summary(mine, runs)

    report: dict[str, object] = asyncio.run(story())
    r2 = report["r2"]
    assert isinstance(r2, dict)
    assert set(r2["recordings"]) == {
        "alone, share",
        "shared, share",
        "shared, elapsed",
        "shared, passed",
    }
    assert r2["recordings"]["alone, share"]["learned"] > 0.7
    busy = report["busy_s"]
    assert isinstance(busy, dict)
    walls = report["wall_s"]
    assert isinstance(walls, dict)
    for kind, wall_s in walls.items():  # it was never idle: shares add up to all of the time
        assert 0.8 * wall_s < busy[kind] <= wall_s + 0.01
    assert busy["shared"] < 0.5 * busy["alone"]  # four slots, nearly as fast as four engines
    languages = report["languages"]
    assert isinstance(languages, dict)
    assert languages["de"]["r2"]["shared"] is None
    assert "1 recordings" in languages["de"]["why"]
    lines = "\n".join(told({"model": "echo", "slots": 4, **report}))
    assert "shared, elapsed" in lines


def test_what_is_foretold_of_a_half_was_learned_from_the_other() -> None:
    # Given windows that take 1 s a second of speech in one half and 2 s in the other
    rows = [Done("en", s, 1, int(5 * s), s * (1 + n % 2)) for n, s in enumerate(range(1, 21))]
    # Then neither foretells the other well; where both halves are alike they do
    foretold = crossed(rows, by_speech)
    assert foretold is not None
    assert foretold < 0.6
    assert crossed(rows[::2], by_speech) == pytest.approx(1.0)
    assert crossed(rows[:2], by_learned) is None
