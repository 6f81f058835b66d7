"""The release before this one works on the tables of this one, alone and beside it."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests import sounds
from tests.journey.house import ROOT
from tests.lines import eventually

BEFORE = "df9e218"
"""The last commit whose tables were those of 0004."""

PARTS = ("api", "errands", "survey", "transcribe")
JOBS = 6
WITHIN_S = 120.0


@pytest.fixture(scope="module")
def release_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its source, out of this checkout's history."""
    packed = subprocess.run(["git", "archive", BEFORE], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode != 0:
        pytest.skip(f"this checkout's history does not reach back to {BEFORE}")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as tar:
        tar.extractall(folder, filter="data")
    told = [sys.executable, "-c", "import pipeline; print(pipeline.__file__)"]
    env = {**os.environ, "PYTHONPATH": str(folder)}
    imported = subprocess.run(told, cwd=folder, env=env, capture_output=True, text=True)
    assert imported.stdout.startswith(str(folder)), "it is not the older release that would run"
    return folder


@contextmanager
def running(part: str, source: Path, env: dict[str, str], log: Path) -> Iterator[None]:
    """One part of the release at `source`, until the end."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "workers.run", part],
            cwd=source,
            env={**os.environ, **env, "PYTHONPATH": str(source)},
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield
        assert process.poll() is None, f"{part} ended: {log.read_text()[-2000:]}"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def answers(ask: Callable[[], httpx.Response]) -> bool:
    try:
        return ask().status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize(
    "old",
    [set(PARTS), {"api", "transcribe"}, {"errands", "survey"}],
    ids=["all of it", "its API and engine", "its errands and survey"],
)
def test_jobs_are_completed_by_the_release_before_on_tables_of_this_one(
    release_before: Path, environ: dict[str, str], tmp_path: Path, old: set[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    env = {**environ, "FAIRSCRIBE_API_PORT": str(port)}
    with ExitStack() as stack:
        for part in PARTS:
            source = release_before if part in old else ROOT
            stack.enter_context(running(part, source, env, tmp_path / f"{part}.log"))
        api = stack.enter_context(
            httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30)
        )
        eventually(lambda: answers(lambda: api.get("/v1/health/ready")), WITHIN_S, "an API")
        sound = sounds.wav(sounds.voice(5.0))
        files = [("files", (f"{n}.wav", sound)) for n in range(JOBS)]
        sent = api.post("/v1/jobs", files=files, data={"batch_id": "b"}).json()["jobs"]
        eventually(
            lambda: api.get("/v1/batches/b").json()["counts"]["completed"] == JOBS,
            WITHIN_S,
            "all completed",
        )
        for job in sent:
            assert api.get(f"/v1/jobs/{job['id']}/transcript").json()["segments"]
            assert api.get(f"/v1/jobs/{job['id']}").json()["attempts"] == 1
