"""The sandbox under the processes it serves: real Celery workers, of every kind we know of.

A worker forks, waits in threads, is killed: the sandbox must answer all the same, hold nothing of
its worker's, and leave with it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from pipeline.intake.prober import Prober
from pipeline.job import SURVEY, State
from pipeline.parts import Parts
from pipeline.steps.accept import Upload, accept
from pipeline.steps.probe import probe
from pipeline.store import partials, views
from pipeline.store.session import transaction
from tests.lines import eventually, states
from tests.sounds import joined, mulaw_wav, silence, tone, voice, wav
from workers.command_lines import command_line

ROOT = Path(__file__).resolve().parents[2]
CALL = wav(joined([silence(1), voice(5), silence(1)]))
SANDBOX = "pipeline.intake.prober_child"

UPLOADS = {
    "call.wav": (CALL, State.PROBED, None),
    "cut.wav": (CALL[:100_000], State.PROBED, None),
    "exchange.wav": (mulaw_wav(tone(4, rate=8_000)), State.PROBED, None),
    "letter.mp3": (b"Dear customer, " * 99, State.FAILED, "not_audio"),
    "header.wav": (CALL[:44], State.FAILED, "no_samples"),
    "playlist.m3u8": (b"#EXTM3U\n#EXTINF:9,\ncall.wav\n", State.FAILED, "not_audio"),
}
"""A name, its bytes, and where its probe leaves it."""


@contextmanager
def serving(
    environ: dict[str, str], parts: Parts, part: str, pool: Sequence[str], log: Path
) -> Iterator[psutil.Process]:
    """A worker as it is started in service, but for its pool; nothing of it stays."""
    words = command_line(part, parts.settings)
    at = words.index("-P")
    words[at : at + (4 if words[at + 2] == "-c" else 2)] = pool
    outside = {k: v for k, v in os.environ.items() if not k.startswith("FAIRSCRIBE_")}
    with log.open("wb") as out:
        started = subprocess.Popen(words, cwd=ROOT, env=outside | environ, stdout=out, stderr=out)
    worker = psutil.Process(started.pid)
    try:
        yield worker
    except BaseException:
        print(log.read_text(errors="replace")[-4_000:])
        raise
    finally:
        everyone = family(worker)
        for process in everyone:
            process.kill()
        started.wait()
        psutil.wait_procs(everyone, timeout=10)


def family(worker: psutil.Process) -> list[psutil.Process]:
    try:
        return [worker, *worker.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def sandboxes(worker: psutil.Process) -> list[psutil.Process]:
    """The servers of the sandbox below a worker, without children at work."""

    def is_sandbox(process: psutil.Process | None) -> bool:
        return process is not None and SANDBOX in process.cmdline()

    return [p for p in family(worker) if is_sandbox(p) and not is_sandbox(p.parent())]


def holds_nothing_of_its_worker(sandbox: psutil.Process) -> None:
    """No descriptor but its own and the log, no connection, no address, no second thread."""
    folder = Path(f"/proc/{sandbox.pid}/fd")
    held = {int(fd.name): os.readlink(fd) for fd in folder.iterdir()}
    assert (held.pop(0), held.pop(1)) == ("/dev/null", "/dev/null")
    assert held.pop(2).endswith("/log")  # its own last words; its children have none
    kinds = sorted(place.partition(":")[0] for place in held.values())
    assert kinds == ["anon_inode", "socket"], held  # the selector, and the requests
    assert sandbox.net_connections("inet") == []
    assert [v for v in sandbox.environ().values() if "://" in v or "fairscribe:" in v] == []
    assert sandbox.num_threads() == 1


def accepted(parts: Parts, name: str, content: bytes) -> str:
    return accept(parts.store, parts.storage, Upload(name, [content]), 10**9).job_id


@pytest.mark.parametrize(
    "pool",
    [
        ("-P", "threads", "-c", "8"),  # as shipped
        ("-P", "prefork", "-c", "2"),  # daemonic children, which multiprocessing gives no child
        ("-P", "solo"),
    ],
    ids=["threads", "prefork", "solo"],
)
def test_a_celery_worker_of_any_pool_probes_in_a_sandbox_that_leaves_with_it(
    environ: dict[str, str], parts: Parts, tmp_path: Path, pool: Sequence[str]
) -> None:
    ids = {name: accepted(parts, name, content) for name, (content, _, _) in UPLOADS.items()}
    with serving(environ, parts, "errands", pool, tmp_path / "log") as worker:
        parts.handover.probe(list(ids.values()))
        eventually(lambda: State.RECEIVED not in states(parts), 60)
        with transaction(parts.store) as c:
            found = {name: views.view(c, job_id) for name, job_id in ids.items()}
        ends = {name: (view.state, view.error_code) for name, view in found.items() if view}
        assert ends == {name: (state, code) for name, (_, state, code) in UPLOADS.items()}
        running = sandboxes(worker)
        assert 1 <= len(running) <= (2 if "prefork" in pool else 1)
        for sandbox in running:
            eventually(lambda s=sandbox: not s.children(), 10)  # type: ignore[misc]
            holds_nothing_of_its_worker(sandbox)
        owner = running[0].parent()
        assert owner is not None
        assert (owner.pid == worker.pid) is ("prefork" not in pool)
        owner.kill()
        assert not psutil.wait_procs([running[0]], timeout=5)[1], "the sandbox outlived its owner"


def test_a_pool_child_that_was_killed_is_followed_by_one_with_a_sandbox_of_its_own(
    environ: dict[str, str], parts: Parts, tmp_path: Path
) -> None:
    pool = ("-P", "prefork", "-c", "1")
    with serving(environ, parts, "errands", pool, tmp_path / "log") as worker:
        for _ in range(2):
            job_id = accepted(parts, "call.wav", CALL)
            parts.handover.probe([job_id])
            eventually(lambda: State.RECEIVED not in states(parts), 60)
            (sandbox,) = sandboxes(worker)
            owner = sandbox.parent()
            assert owner is not None
            owner.kill()
            assert not psutil.wait_procs([sandbox], timeout=5)[1]
    assert states(parts) == {State.PROBED: 2}


def test_the_survey_puller_reads_recordings_in_a_sandbox_that_leaves_with_it(
    environ: dict[str, str], parts: Parts, tmp_path: Path
) -> None:
    prober = Prober()
    names = ("call.wav", "cut.wav", "exchange.wav")
    ids = [accepted(parts, name, UPLOADS[name][0]) for name in names]
    for job_id in ids:
        probe(parts.store, parts.storage, prober, parts.queues[SURVEY.name], job_id, "en")
    prober.close()
    with serving(environ, parts, "survey", ("-P", "solo"), tmp_path / "log") as worker:
        waiting = (State.PROBED, State.SURVEYING)
        eventually(lambda: not any(state in states(parts) for state in waiting), 60)
        with transaction(parts.store) as c:
            planned = [partials.plan_of(c, job_id) for job_id in ids[:2]]
        assert all(plan is not None and plan[0].windows for plan in planned)
        (sandbox,) = sandboxes(worker)
        eventually(lambda: not sandbox.children(), 10)
        holds_nothing_of_its_worker(sandbox)
        worker.kill()
        assert not psutil.wait_procs([sandbox], timeout=5)[1], "the sandbox outlived its worker"
