"""A hundred and fifty recordings in and out of a whole house, interrupted in between."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.submit import make_recordings
from tests.journey.house import CLI, House, figures, until

COUNT = 150


@pytest.fixture(scope="module")
def up(running: Any) -> Iterator[House]:
    with running(ENGINE="echo", ECHO_FIXED_S="0.01", ECHO_PER_SECOND_S="0.001") as house:
        house.env["XDG_STATE_HOME"] = str(house.root / "journals")
        yield house


def test_nothing_is_wrong_with_a_house_that_is_up(up: House) -> None:
    verdicts = {verdict["check"]: verdict for verdict in up.cli("doctor")}
    assert verdicts["workers"]["said"] == "Workers answer: errands, survey, transcribe."
    assert all(verdict["ok"] for verdict in verdicts.values())


def test_killed_at_half_and_run_again_each_recording_is_one_job_with_one_transcript(
    up: House,
) -> None:
    calls = up.root / "calls"
    make_recordings(calls, COUNT)
    words = ["submit", str(calls)]

    process = subprocess.Popen([CLI, *words], cwd=up.root, env=up.env, stdout=subprocess.DEVNULL)
    until(lambda: jobs(up) >= COUNT // 2, 30, "half of them are jobs")
    process.kill()
    process.wait()
    at_kill = jobs(up)
    answer = up.cli(*words)

    assert 0 < answer["resumed"] < COUNT
    assert sorted(job["file_name"] for job in answer["jobs"]) == sorted(os.listdir(calls))
    watched = up.cli("watch", answer["batch_id"])
    assert Counter(job["status"] for job in watched["jobs"]) == {"completed": COUNT}
    rows = up.sql("SELECT file_name, count(*), count(DISTINCT batch_id) FROM jobs GROUP BY 1")
    assert {row[1:] for row in rows} == {(1, 1)}
    assert len(rows) == COUNT
    assert set(up.transcripts([job["id"] for job in answer["jobs"]])) == {1}
    assert list((up.root / "journals").rglob("*.jsonl")) == []
    figures("bulk", files=COUNT, at_kill=at_kill, resumed=answer["resumed"])

    out = up.root / "out"
    told = up.cli("export", answer["batch_id"], "--to", out, "--format", "json")
    assert len(told["recordings"]) == COUNT
    heard = [json.loads(path.read_text()) for path in out.glob("*.json")]
    assert {one["job_id"] for one in heard} == {job["id"] for job in answer["jobs"]}
    up.cli("export", answer["batch_id"], "--to", out, "--format", "csv")
    assert len(list(Path(out).glob("*.csv"))) == 1


def jobs(up: House) -> int:
    return int(up.sql("SELECT count(*) FROM jobs")[0][0])
