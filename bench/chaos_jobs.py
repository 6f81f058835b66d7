"""Brings jobs to the house while it breaks, and knows what each transcript must say.

Most are put in surveyed already, with windows of chance in storage; some wait for their survey;
some come the whole way, uploaded to the API. The echo engine tells length and hash of every window
it heard: what it must have heard is known beforehand.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import re
import tempfile
import threading
import uuid
from collections.abc import Mapping
from typing import Any

import httpx
import numpy as np
import uuid_utils.compat as uuid_utils
from sqlalchemy import func, insert, select

from bench.chaos_house import House
from pipeline.errors import PartDown
from pipeline.intake.prober import Prober
from pipeline.intake.storage import Storage
from pipeline.job import FINAL, State
from pipeline.recording import SAMPLE_BYTES, Plan
from pipeline.scheduling.work import bucket_of, predicted_work_s
from pipeline.settings import sqlalchemy_url
from pipeline.store import tables
from pipeline.store.session import open_store, transaction
from tests.lines import plan_of_windows
from tests.sounds import sides, silence, voice, wav

Said = list[tuple[str, str]]
"""What a transcript must hold, in order of its letters: length and hash of each window."""

ROUND_S = 0.5
JOBS_A_SECOND = 12.0
MOST_UNFINISHED = 200
"""With more of them the house is left to work some off: what is asked is not how much it bears."""
PROBED_SHARE, UPLOADED_SHARE = 0.04, 0.04

SIZES = ((75, (1, 4), 0.2), (20, (4, 10), 0.1), (3, (2, 4), 10.0), (2, (30, 50), 0.1))
"""(weight, windows from and to, seconds a window): of the third kind several windows are in flight
longer than a lease is renewed."""
LONG = 2

OURS = "-0-chaos"
"""Ends the keys of packed speech that is put in, not surveyed."""

_ECHO = re.compile(r"echo (\d+\.\d\d) ([0-9a-f]{8})")


def heard_in(text: str) -> Said:
    """The windows a transcript tells of."""
    return sorted(_ECHO.findall(text))


class Feed(threading.Thread):
    """Brings jobs until told to stop."""

    def __init__(self, house: House, seed: int) -> None:
        super().__init__(name="feed", daemon=True)
        self._house, self._chance = house, random.Random(seed)
        self._store = open_store(sqlalchemy_url(house.database_url))
        self._storage = Storage(house.home / "storage")
        self._done = threading.Event()
        self._tables = (tables.jobs, tables.plans)
        self.recordings = _recordings()
        self.said_in_file: Mapping[str, Said] = {
            name: _surveyed(name, content) for name, content in self.recordings.items()
        }
        self.said: dict[str, Said] = {}
        """By id, for jobs that were put in; those of uploads are told by their file's name."""
        self.accepted: set[str] = set()
        """Ids whose commit was confirmed, or whose 202 was seen."""
        self.refused = 0
        """Uploads without a 202."""

    def stop(self) -> None:
        """Bring no more; returns when nothing is under way."""
        self._done.set()
        self.join(20.0)
        self._store.dispose()

    def run(self) -> None:
        """See `threading.Thread`."""
        due = 0.0
        with httpx.Client(base_url=self._house.api_url, timeout=5.0, trust_env=False) as client:
            while not self._done.wait(ROUND_S):
                try:
                    if self._unfinished() > MOST_UNFINISHED:
                        continue
                    due += JOBS_A_SECOND * ROUND_S
                    many, due = int(due), due % 1
                    uploaded = sum(self._chance.random() < UPLOADED_SHARE for _ in range(many))
                    self._put_in(many - uploaded)
                    self._upload(client, uploaded)
                except PartDown:
                    continue  # what it was about may be there or not; it was not accepted

    def _unfinished(self) -> int:
        live = [state.value for state in State if state not in FINAL]
        query = select(func.count()).where(tables.jobs.c.state.in_(live))
        with transaction(self._store) as c:
            return int(c.execute(query).scalar_one())

    # -- rows put in ------------------------------------------------------------------------

    def put_in_long(self, many: int) -> None:
        """Jobs that stay in hand for a while, put in at once. Raises `PartDown`."""
        self._insert([self._planned(str(uuid_utils.uuid7()), long=True) for _ in range(many)], [])

    def _put_in(self, many: int) -> None:
        ids = [str(uuid_utils.uuid7()) for _ in range(many)]
        probed = [job_id for job_id in ids if self._chance.random() < PROBED_SHARE]
        planned = [self._planned(job_id) for job_id in ids if job_id not in probed]
        self._insert(planned, [self._probed(job_id) for job_id in probed])

    def _insert(
        self, planned: list[tuple[dict[str, Any], dict[str, Any]]], rows: list[dict[str, Any]]
    ) -> None:
        rows = rows + [row for row, _ in planned]
        arrival = func.floor(func.extract("epoch", func.clock_timestamp()) * 1000)
        with transaction(self._store) as c:
            for row in rows:
                c.execute(insert(tables.jobs).values(**row, arrival_ms=arrival))
            if planned:
                c.execute(insert(tables.plans), [plan for _, plan in planned])
        self.accepted |= {str(row["id"]) for row in rows}

    def _probed(self, job_id: str) -> dict[str, Any]:
        name = self._chance.choice(list(self.recordings))
        content, key = self.recordings[name], f"recordings/{job_id}"
        self._storage.put(key, [content], len(content))
        self.said[job_id] = self.said_in_file[name]
        return {
            **_row(job_id, name, State.PROBED),
            "size_bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "bucket": 30,
            "duration_s": 3.0,
        }

    def _planned(self, job_id: str, *, long: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
        weights, counts, lengths = zip(*SIZES, strict=True)
        (kind,) = [LONG] if long else self._chance.choices(range(len(SIZES)), weights)
        windows = self._chance.randint(*counts[kind])
        plan = plan_of_windows(windows, lengths[kind])
        key = f"packed/{job_id}{OURS}"
        pcm = os.urandom(sum(window.sample_count for window in plan.windows) * SAMPLE_BYTES)
        self._storage.put(key, [pcm], len(pcm))
        self.said[job_id] = _said(plan, pcm)
        row = {
            **_row(job_id, "surveyed.wav", State.SURVEYED),
            "bucket": bucket_of(predicted_work_s(plan.speech_s, windows, "en")),
            "duration_s": plan.duration_s,
            "speech_s": plan.speech_s,
            "plan_hash": plan.plan_hash,
            "windows_total": windows,
        }
        mine = {"job_id": uuid.UUID(job_id), "plan_hash": plan.plan_hash}
        return row, {**mine, "artefact_key": key, "plan": plan.to_json()}

    # -- uploads ----------------------------------------------------------------------------

    def _upload(self, client: httpx.Client, many: int) -> None:
        if not many:
            return
        names = self._chance.choices(list(self.recordings), k=many)
        files = [("files", (name, self.recordings[name])) for name in names]
        try:
            answer = client.post("/v1/jobs", files=files)
        except httpx.HTTPError:
            self.refused += many
            return
        told = answer.json().get("jobs", []) if answer.status_code == httpx.codes.ACCEPTED else []
        ids = {job["id"] for job in told if job.get("id")}
        self.accepted |= ids
        self.refused += many - len(ids)


def _row(job_id: str, name: str, state: State) -> dict[str, Any]:
    return {
        "id": uuid.UUID(job_id),
        "file_name": name,
        "storage_key": f"recordings/{job_id}",
        "size_bytes": 1,
        "sha256": "0" * 64,
        "state": state.value,
        "index_pending": True,
    }


def _recordings() -> dict[str, bytes]:
    """Calls of two sides, so that a short one has two windows."""
    made = {}
    for number in range(3):
        seconds = 1.2 + 0.4 * number
        left = np.concatenate([voice(seconds, seed=number), silence(seconds)])
        right = np.concatenate([silence(seconds), voice(seconds, seed=number + 9, pitch_hz=180.0)])
        made[f"call-{number}.wav"] = wav(sides(left, right), channels=2)
    return made


def _surveyed(name: str, content: bytes) -> Said:
    """What a survey makes of a recording: the same each time."""
    with (
        contextlib.closing(Prober(max_duration_s=60)) as prober,
        tempfile.TemporaryFile() as recording,
        tempfile.TemporaryFile(buffering=0) as packed,
    ):
        recording.write(content)
        recording.flush()
        recording.seek(0)
        report = prober.survey(recording.fileno(), packed.fileno(), name)
        packed.seek(0)
        said = _said(report.plan, packed.read())
    if len(said) < 2:
        raise SystemExit(f"{name} was to have several windows and has {len(said)}")
    return said


def _said(plan: Plan, pcm: bytes) -> Said:
    said = []
    for window in plan.windows:
        first = window.first_sample * SAMPLE_BYTES
        part = pcm[first : first + window.sample_count * SAMPLE_BYTES]
        said.append((f"{window.length_s:.2f}", hashlib.sha256(part).hexdigest()[:8]))
    return sorted(said)
