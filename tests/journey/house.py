"""`fairscribe up` as a person starts it: one process, asked and watched from outside.

Everything a journey does goes through the doors people have (command line, HTTP, Flower) or through
what they may do to a process (signals). Postgres only watches: triggers write down every grant,
every window that was heard and every transcript, since a finished job forgets its windows.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import psycopg

from tests.servers import is_alive, throwaway_home

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT / "bench" / "recordings"
CLI = str(Path(sys.executable).with_name("fairscribe"))

READY_WITHIN_S = 240.0
STOP_WITHIN_S = 90.0
TICK_S = 0.02

FINAL = ("completed", "failed", "cancelled")

WATCH = """
CREATE TABLE journey (
    n bigserial, at double precision DEFAULT extract(epoch FROM clock_timestamp()),
    what text, job_id uuid, attempt int, detail text);
CREATE FUNCTION note_window() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO journey (what, job_id, attempt, detail)
    VALUES ('window', NEW.job_id, NEW.attempt, NEW.index); RETURN NEW; END $$;
CREATE FUNCTION note_transcript() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO journey (what, job_id, attempt)
    VALUES ('transcript', NEW.job_id, NEW.attempt); RETURN NEW; END $$;
CREATE FUNCTION note_grant() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO journey (what, job_id, attempt, detail)
    VALUES (NEW.state, NEW.id, NEW.attempt, NEW.worker); RETURN NEW; END $$;
-- before the insert: a window heard a second time is noted, though the table keeps the first
CREATE TRIGGER note BEFORE INSERT ON windows FOR EACH ROW EXECUTE FUNCTION note_window();
CREATE TRIGGER note AFTER INSERT ON transcripts FOR EACH ROW EXECUTE FUNCTION note_transcript();
CREATE TRIGGER note AFTER UPDATE ON jobs FOR EACH ROW WHEN (NEW.attempt > OLD.attempt)
    EXECUTE FUNCTION note_grant();
"""


class House:
    """One `fairscribe up --json` with free ports and its state under `root`.

    `settings` are FAIRSCRIBE_* variables without the prefix. Temporary files of everything it
    starts lie under `root` too, so that a forgotten one is seen.
    """

    def __init__(self, root: Path, **settings: str) -> None:
        self.root, self.home, self.tmp = root, root / "home", root / "tmp"
        self.tmp.mkdir()
        self._said = root / "said"
        given = {"API_PORT": "0", "FLOWER_PORT": "0", "HOME": str(self.home), **settings}
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("FAIRSCRIBE_")},
            **{f"FAIRSCRIBE_{name}": value for name, value in given.items()},
            "TMPDIR": str(self.tmp),
        }
        self.process: subprocess.Popen[str] | None = None
        self._open = contextlib.ExitStack()
        self.up: dict[str, Any] = {}
        self.ready_s = 0.0
        """What it took to be ready."""

    # -- its life ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start it, wait for the line of JSON, open its doors."""
        began_s = time.monotonic()
        with self._said.open("w") as said:
            # From a folder that is not the checkout: what is installed must suffice.
            self.process = subprocess.Popen(
                [CLI, "up", "--json"],
                cwd=self.root,
                env=self.env,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
        assert self.process.stdout is not None
        heard, _, _ = select.select([self.process.stdout], [], [], READY_WITHIN_S)
        line = self.process.stdout.readline() if heard else ""
        assert line, f"never ready:\n{self._said.read_text()}"
        self.up = json.loads(line)
        self.ready_s = time.monotonic() - began_s
        keep = self._open.enter_context
        self._api = keep(httpx.Client(base_url=self.up["api"], timeout=30, trust_env=False))
        self._flower = keep(httpx.Client(base_url=self.up["flower"], timeout=30, trust_env=False))
        url = self.up["database_url"].replace("+psycopg", "", 1)
        self._postgres = keep(psycopg.connect(url, autocommit=True))
        self._postgres.execute(WATCH)

    def stop(self) -> int:
        """Ctrl-C; its exit code."""
        assert self.process is not None
        self._open.close()
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(STOP_WITHIN_S)

    def close(self) -> None:
        """Stop it if it runs; fail when that was not clean or anything of it is left."""
        try:
            if self.process is not None and self.process.poll() is None:
                code = self.stop()
                assert code == 0, f"exit code {code}:\n{self.last_words()}"
        finally:
            if self.process is not None:
                self.process.kill()
                self.process.wait()
                if self.process.stdout:
                    self.process.stdout.close()
            left = self.processes()
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            assert not left, f"left running: {left}"

    def last_words(self) -> str:
        """What it said, and the ends of all logs, for a test that failed."""
        # The ends of logs it quotes are indented; they follow in full.
        told = [line for line in self._said.read_text().splitlines() if line[:1] not in ("", " ")]
        texts = ["--- up\n" + "\n".join(told)]
        for log in sorted(self.home.glob("logs/*.log")):
            lines = log.read_text(errors="replace").splitlines()[-25:]
            texts.append(f"--- {log.name}\n" + "\n".join(lines))
        return "\n".join(texts)

    # -- what is of it ----------------------------------------------------------------------

    def processes(self) -> list[psutil.Process]:
        """Everything that lives and has to do with our folders, descendants or not.

        Celery writes its title over its command line and environment, so open files tell as well.
        """
        mark = str(self.root)
        return [p for p in psutil.process_iter() if is_alive(p.pid) and mark in _traces(p.pid)]

    def sockets(self) -> list[str]:
        """Unix sockets under our folders: open ones and their files."""
        files = [str(p) for p in self.root.rglob("*") if stat.S_ISSOCK(p.lstat().st_mode)]
        open_ones = Path("/proc/net/unix").read_text().splitlines()
        return files + [line for line in open_ones if str(self.root) in line]

    def part(self, name: str) -> psutil.Process:
        """The process of a part as it runs now; `up` tells those of the first start.

        Each writes to a log of its own: that is how it is known.
        """
        assert self.process is not None
        log = str(self.home / "logs" / f"{name}.log")
        for child in psutil.Process(self.process.pid).children():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{child.pid}/fd/1") == log and is_alive(child.pid):
                    return child
        raise LookupError(name)

    def kill(self, name: str) -> int:
        """Kill -9 a part; returns its pid once it is dead."""
        process = self.part(name)
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: not is_alive(process.pid), 5, f"{name} is dead")
        return process.pid

    def says(self, pattern: str) -> int:
        """How often it said a line that matches."""
        return len(re.findall(pattern, self._said.read_text(), re.MULTILINE))

    # -- its doors --------------------------------------------------------------------------

    def cli(self, *words: str | Path, code: int | None = 0) -> Any:
        """What `fairscribe ... --json` prints; its exit code must be `code` (None: any)."""
        argv = [CLI, *map(str, words), "--json"]
        answer = subprocess.run(argv, cwd=self.root, env=self.env, capture_output=True, text=True)
        assert code in (None, answer.returncode), f"{words}: {answer.stdout}{answer.stderr}"
        return json.loads(answer.stdout)

    def submit(self, *files: Path, batch: str) -> dict[str, str]:
        """Submit; {file name: job id}."""
        jobs = self.cli("submit", *files, "--batch-id", batch, code=None)["jobs"]
        return {job["file_name"]: job["id"] for job in jobs}

    def upload(self, file: Path, batch: str) -> dict[str, str]:
        """The same without the command line, which takes a second to start."""
        form = {"files": (file.name, file.read_bytes())}
        answer = self._api.post("/v1/jobs", files=form, data={"batch_id": batch})
        answer.raise_for_status()
        return {job["file_name"]: job["id"] for job in answer.json()["jobs"]}

    def get(self, path: str) -> Any:
        """GET from the API."""
        answer = self._api.get(path)
        answer.raise_for_status()
        return answer.json()

    def post(self, path: str) -> Any:
        """POST to the API."""
        answer = self._api.post(path)
        answer.raise_for_status()
        return answer.json()

    def job(self, job_id: str) -> dict[str, Any]:
        """The job as the API tells it."""
        return dict(self.get(f"/v1/jobs/{job_id}"))

    def jobs(self, batch: str) -> list[dict[str, Any]]:
        """All jobs of a batch."""
        return list(self.get(f"/v1/jobs?batch={batch}&limit=1000")["jobs"])

    def ended(self, batch: str, count: int, within_s: float) -> list[dict[str, Any]]:
        """The jobs of a batch once `count` are there and none goes on."""

        def all_ended() -> list[dict[str, Any]] | None:
            jobs = self.jobs(batch)
            done = [job for job in jobs if job["status"] in FINAL]
            return jobs if len(done) == len(jobs) == count else None

        return list(until(all_ended, within_s, f"{count} jobs of {batch} have ended"))

    def transcript(self, job_id: str) -> dict[str, Any]:
        """Its transcript."""
        return dict(self.get(f"/v1/jobs/{job_id}/transcript"))

    def flower(self, path: str, method: str = "GET") -> httpx.Response:
        """Ask Flower; a missing page is an answer."""
        return self._flower.request(method, path)

    def task(self, task_id: str) -> dict[str, Any]:
        """A task as Flower tells it; empty when it knows none."""
        answer = self.flower(f"/api/task/info/{task_id}")
        return dict(answer.json()) if answer.status_code == 200 else {}

    def worker(self, name: str) -> dict[str, Any]:
        """A worker's line in Flower: its counts; empty before it was seen."""
        lines = self.flower("/workers?json=1").json()["data"]
        return next((line for line in lines if line["hostname"].startswith(f"{name}@")), {})

    def openai(self, **how: Any) -> openai.OpenAI:
        """OpenAI's official client, given nothing but our address."""
        return openai.OpenAI(base_url=f"{self.up['api']}/v1", api_key="none is needed", **how)

    # -- what Postgres saw ------------------------------------------------------------------

    def sql(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Ask Postgres."""
        return self._postgres.execute(query, values).fetchall()

    def seen(self, what: str, job_id: str | None = None) -> list[tuple[float, str, int, str]]:
        """(time, job id, attempt, detail) of every window, transcript or grant, in order.

        A grant is called by the state it leads to: surveying or running.
        """
        rows = self.sql("SELECT at, job_id, attempt, detail FROM journey WHERE what = %s", what)
        rows.sort(key=lambda row: row[0])
        return [(at, str(j), n, d) for at, j, n, d in rows if job_id in (None, str(j))]

    def windows(self, job_id: str) -> dict[int, int]:
        """How often each window of a job was heard and saved."""
        counts: dict[int, int] = {}
        for _, _, _, index in self.seen("window", job_id):
            counts[int(index)] = counts.get(int(index), 0) + 1
        return counts

    def transcripts(self, job_ids: list[str]) -> list[int]:
        """How many transcripts each job got."""
        got = [job_id for _, job_id, _, _ in self.seen("transcript")]
        return [got.count(job_id) for job_id in job_ids]


def _traces(pid: int) -> str:
    """All a process tells of where it works: words, environment, folder, open files."""
    proc = Path("/proc") / str(pid)
    found = b""
    for file in ("cmdline", "environ"):
        with contextlib.suppress(OSError):
            found += (proc / file).read_bytes()
    links = [proc / "cwd"]
    with contextlib.suppress(OSError):
        links += (proc / "fd").iterdir()
    for link in links:
        with contextlib.suppress(OSError):
            found += b"\n" + os.fsencode(link.readlink())
    return os.fsdecode(found)


@contextlib.contextmanager
def house(**settings: str) -> Iterator[House]:
    """A house that runs; stopped at the end, with nothing left of it."""
    with throwaway_home() as root:
        made = House(root, **settings)
        try:
            made.start()
            yield made
        finally:
            made.close()


def until(truth: Callable[[], Any], within_s: float, what: str) -> Any:
    """Wait until `truth()` holds and return it; a service away for a moment is waited for."""
    end_s = time.monotonic() + within_s
    while True:
        with contextlib.suppress(httpx.TransportError, LookupError):
            if value := truth():
                return value
        assert time.monotonic() < end_s, f"not within {within_s:g} s: {what}"
        time.sleep(TICK_S)


def figures(test: str, **values: Any) -> None:
    """Print what a test measured as one line of JSON; `pytest -s` shows it."""
    rounded = {k: round(v, 2) if isinstance(v, float) else v for k, v in values.items()}
    print("\n" + json.dumps({"journey": test, **rounded}), flush=True)
