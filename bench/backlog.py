"""Jobs through a running house, timed by what Postgres wrote down."""

from __future__ import annotations

import os
import socket
import time
import uuid
from typing import Any

import httpx
import psutil
import uuid_utils.compat as uuid_utils
from sqlalchemy import func, select

from bench.sets import Recording
from pipeline.job import SURVEY, TRANSCRIBE, State
from pipeline.parts import Parts, open_parts
from pipeline.recording import Probe
from pipeline.scheduling.policies import Waiting
from pipeline.scheduling.work import bucket_of, predicted_work_s
from pipeline.settings import read_settings
from pipeline.store import jobs, partials, tables, views
from pipeline.store.session import transaction
from workers.app import make_app

FILES_A_REQUEST = 16
LOOK_S = 0.1
PATIENCE_S = 300.0

PARTS = {"postgres": "database", "valkey": "redis", "survey": "survey and decode"}
"""Parts of `up` by their name in the waterfall; the others are `doors`."""


class Line:
    """A house that is up, and the recordings to send through it."""

    def __init__(self, up: dict[str, Any], recordings: list[Recording]) -> None:
        self._up, self._recordings = up, recordings
        names = {"HOME": "home", "DATABASE_URL": "database_url", "REDIS_URL": "redis_url"}
        environ = {f"FAIRSCRIBE_{name}": up[key] for name, key in names.items()}
        self._parts: Parts = open_parts(read_settings(environ))
        self._celery = make_app(self._parts.settings)
        self.pids = [pid for pid in up["pids"].values() if psutil.pid_exists(pid)]
        self.slots = int(self._facts()["slots"])

    # -- the two runs -----------------------------------------------------------------------

    def transcribe(self) -> dict[str, Any]:
        """The surveyed windows through the worker; also the idle share of its slots."""
        batch = f"transcribe-{uuid.uuid4()}"
        places = [self._surveyed(recording, batch) for recording in self._recordings]
        queue = self._parts.queues[TRANSCRIBE.name]
        before, used = self._facts(), self._used()
        queue.enqueue(places)
        self._wait(batch)
        last = self._facts()["last_window"]
        began_s, ended_s = self._span(batch)
        # Until the last window began, for until then some waited. Postgres' clock is this
        # machine's; the worker's facts are by the monotonic one.
        from_s = began_s - time.time() + time.monotonic()
        busy_s = last["slot_busy_s"] - before["slot_busy_s"]
        idle = 1 - busy_s / (self.slots * (last["at_s"] - from_s))
        return {
            "seconds": ended_s - began_s,
            "cpu_s": sum(self._since(used).values()),
            "idle_share": idle,
            "cpu": self._since(used),
            "heard": self._heard(batch),
        }

    def pipeline(self) -> dict[str, Any]:
        """The files from the first upload to the last transcript."""
        batch = f"pipeline-{uuid.uuid4()}"
        used, began_s = self._used(), time.time()
        with httpx.Client(base_url=self._up["api"], timeout=60, trust_env=False) as client:
            for at in range(0, len(self._recordings), FILES_A_REQUEST):
                some = self._recordings[at : at + FILES_A_REQUEST]
                files = [("files", (r.name, r.path.read_bytes())) for r in some]
                client.post("/v1/jobs", files=files, data={"batch_id": batch}).raise_for_status()
        self._wait(batch)
        _, ended_s = self._span(batch)
        seconds = ended_s - began_s
        spent = self._since(used)
        cores_s = (os.cpu_count() or 1) * seconds
        shares = {part: round(cpu_s / cores_s, 4) for part, cpu_s in spent.items()}
        shares["idle or foreign"] = round(1 - sum(shares.values()), 4)
        return {
            "seconds": seconds,
            "cpu_s": sum(spent.values()),
            "waterfall": shares,
            "heard": self._heard(batch),
        }

    # -- jobs -------------------------------------------------------------------------------

    def _surveyed(self, recording: Recording, batch: str) -> Waiting:
        """A job that waits for the engine, its packed speech in storage, not yet in the queue."""
        job_id, plan = str(uuid_utils.uuid7()), recording.plan
        key = f"packed/{job_id}-1"
        self._parts.storage.put(key, [recording.packed], 10**9)
        bucket = bucket_of(predicted_work_s(plan.speech_s, len(plan.windows), "en"))
        row = {
            "file_name": recording.name,
            "batch_id": batch,
            "storage_key": f"recordings/{job_id}",
            "size_bytes": 1,
            "sha256": "0" * 64,
        }
        probe = Probe(plan.duration_s, "header", False, "wav", "pcm_s16le", 16_000, 1)
        with transaction(self._parts.store) as c:
            jobs.add_job(c, job_id, row)
            jobs.keep_probe(c, job_id, probe, bucket)
            (ticket,) = jobs.grant(c, SURVEY, [job_id], "bench", None)
            place = jobs.keep_survey(c, ticket, plan, bucket)
            partials.keep_plan(c, job_id, plan, key)
            # left to us, or the outbox would queue it before the others
            mine = tables.jobs.c.id == uuid.UUID(job_id)
            c.execute(tables.jobs.update().where(mine).values(index_pending=False))
        assert place is not None
        return place

    def _wait(self, batch: str) -> None:
        ended = [State.COMPLETED.value, State.FAILED.value]
        query = select(func.count()).where(
            tables.jobs.c.batch_id == batch, tables.jobs.c.state.in_(ended)
        )
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            with transaction(self._parts.store) as c:
                if c.execute(query).scalar_one() == len(self._recordings):
                    return
            if time.monotonic() > deadline_s:
                raise SystemExit(f"{batch} has not ended in {PATIENCE_S:.0f} s")
            time.sleep(LOOK_S)

    def _span(self, batch: str) -> tuple[float, float]:
        """First grant of the engine and last end, epoch seconds."""
        at = tables.jobs.c
        query = select(
            func.extract("epoch", func.min(at.started_at)),
            func.extract("epoch", func.max(at.completed_at)),
        ).where(at.batch_id == batch)
        with transaction(self._parts.store) as c:
            began_s, ended_s = c.execute(query).one()
        return float(began_s), float(ended_s)

    def _heard(self, batch: str) -> dict[str, str]:
        with transaction(self._parts.store) as c:
            found = views.list_jobs(c, batch_id=batch, limit=10_000)
            bodies = {job.file_name: views.transcript_body(c, job.id) for job in found}
        return {name: body["text"] if body else "" for name, body in bodies.items()}

    # -- what is used -----------------------------------------------------------------------

    def _facts(self) -> dict[str, Any]:
        """What the transcribe worker tells of itself."""
        # by its name: with a pattern the first answer may be another worker's empty one
        worker = f"transcribe@{socket.gethostname()}"
        for _ in range(20):
            stats = self._celery.control.inspect(timeout=3.0, limit=1, destination=[worker])
            for answer in (stats.stats() or {}).values():
                return dict(answer["puller"])
        raise SystemExit("the transcribe worker does not answer")

    def _used(self) -> dict[str, float]:
        """CPU seconds so far, by what they are used for."""
        found: dict[str, float] = {}
        for name, pid in self._up["pids"].items():
            if not psutil.pid_exists(pid):
                continue
            top = psutil.Process(pid)
            for process in (top, *top.children(recursive=True)):
                part = PARTS.get(name, "doors")
                try:
                    if name == "transcribe":
                        engine = "EngineCore" in " ".join(process.cmdline())
                        part = "engine" if engine else "worker"
                    spent_s = sum(process.cpu_times()[:4])
                except psutil.NoSuchProcess:
                    continue
                found[part] = found.get(part, 0.0) + spent_s
        return found

    def _since(self, before: dict[str, float]) -> dict[str, float]:
        now = self._used()
        return {part: round(now[part] - before.get(part, 0.0), 2) for part in now}
