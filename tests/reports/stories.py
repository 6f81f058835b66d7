"""Checks that take more than a file and a length: the API's door, memory, hours of sound."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
from fastapi.testclient import TestClient

from pipeline.errors import LimitExceeded
from pipeline.intake.prober import Prober
from pipeline.parts import Parts
from tests import driven
from tests.api_door import send
from tests.reports.checks import Check, Here, memory_bytes, near, refusal_of
from tests.reports.files import gated, made, mp3, said
from tests.sounds import joined, silence, tone, wav


def a_refusal_is_told_as_such(here: Here) -> None:
    """HTTP 200 with an error inside: ours has a state, a code and a sentence."""
    client: TestClient = here.ask("api")
    (empty,) = send(client, ("song.mp3", b"")).json()["jobs"]
    told = client.get(f"/v1/jobs/{empty['id']}").json()
    assert (told["status"], told["error"]["code"]) == ("failed", "empty")
    answer = client.get(f"/v1/jobs/{empty['id']}/transcript")
    assert answer.status_code >= 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert near(here.probe(mp3(gated(), header=True)).duration_s, 20)


NAMES = (
    "нет звука ü 録音’.wav",
    "-rf --help.wav",
    "\u202egnp.wav",
    "a\nb\r\n.wav",
    "é" * 500 + ".wav",
)


def any_name_is_kept(here: Here) -> None:
    client: TestClient = here.ask("api")
    parts: Parts = here.ask("parts")
    for name in NAMES:
        answer = send(client, (name, wav(tone(1))))
        assert answer.status_code == 202, answer.text
        (job,) = answer.json()["jobs"]
        driven.completed(parts, job["id"])
        kept = client.get(
            f"/v1/jobs/{job['id']}/transcript", params={"format": "srt", "download": 1}
        )
        assert kept.status_code == 200
        assert kept.headers["content-disposition"].isascii()
        assert re.match(r"attachment; filename=\"[^\"\r\n]+\"", kept.headers["content-disposition"])


def accepted(content: bytes, duration_s: float) -> Check:
    """A large file is taken whole, and measured."""

    def check(here: Here) -> None:
        (job,) = send(here.ask("api"), ("large.wav", content)).json()["jobs"]
        assert job["status"] == "queued"
        assert near(here.probe(content).duration_s, duration_s)

    return check


def too_large_is_refused_while_it_comes(here: Here) -> None:
    here.ask("monkeypatch").setenv("FAIRSCRIBE_MAX_UPLOAD_MB", "1")
    url = here.ask("served")
    sent = 0

    def zeros() -> Iterator[bytes]:
        nonlocal sent
        yield b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.wav"\r\n\r\n'
        while sent < 200_000_000:
            sent += 1_000_000
            yield bytes(1_000_000)
        yield b"\r\n--x--\r\n"

    form = {"Content-Type": "multipart/form-data; boundary=x"}
    (job,) = httpx.post(f"{url}/v1/jobs", content=zeros(), headers=form, timeout=60).json()["jobs"]
    assert job["error"]["code"] == "too_large"
    home = Path(here.ask("environ")["FAIRSCRIBE_HOME"])
    kept = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
    assert kept < 5_000_000


def a_slow_upload_is_waited_for(here: Here) -> None:
    """5 kB/s for six seconds."""
    content = wav(tone(0.9))
    url = here.ask("served")

    def slowly() -> Iterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.wav"\r\n\r\n'
        for at in range(0, len(content), 2_500):
            time.sleep(0.5)
            yield content[at : at + 2_500]
        yield b"\r\n--x--\r\n"

    form = {"Content-Type": "multipart/form-data; boundary=x"}
    (job,) = httpx.post(f"{url}/v1/jobs", content=slowly(), headers=form, timeout=60).json()["jobs"]
    assert (job["status"], job["size_bytes"] if "size_bytes" in job else len(content)) == (
        "queued",
        len(content),
    )


def nothing_is_cut_at_ten_minutes(here: Here) -> None:
    sound = joined([silence(640), said("hotel.flac"), silence(16)])
    plan = here.survey(wav(sound)).plan
    assert near(plan.duration_s, 659.4)
    assert plan.windows[-1].pieces[-1].start_s > 630


def hours_are_bounded(here: Here) -> None:
    """Forty minutes, where twenty are allowed: refused by probe and survey, in little memory."""
    quiet = np.tile(joined([tone(1, rate=8_000), silence(59, rate=8_000)]), 40)
    content = made(quiet, "flac", "flac", 8_000)
    assert len(content) < 1_000_000
    own = Prober(max_duration_s=1_200, survey_memory_bytes=1 << 30)
    there = Here({"prober": own}.__getitem__)
    try:
        assert refusal_of(lambda: there.probe(content)) == "too_long"
        assert refusal_of(lambda: there.survey(content)) == "too_long"
    finally:
        own.close()


def memory_stays(here: Here) -> None:
    content = wav(tone(1))
    for _ in range(20):
        here.probe(content)
    pid = here.prober._current()._process.pid
    before = memory_bytes(pid)
    for _ in range(100):
        here.probe(content)
    assert memory_bytes(pid) - before < 2_000_000


def one_that_exhausts_costs_itself(here: Here) -> None:
    """Sixty-four channels for a minute, where less memory is allowed than they take."""
    own = Prober(survey_memory_bytes=400 << 20)
    there = Here({"prober": own}.__getitem__)
    many = wav(np.repeat(tone(60, rate=8_000), 64), 8_000, channels=64)
    try:
        assert refusal_of(lambda: there.survey(many)) == LimitExceeded.code
        assert near(there.survey(wav(said("hotel.flac"))).plan.duration_s, 3.44)
    finally:
        own.close()
