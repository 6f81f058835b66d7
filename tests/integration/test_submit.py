"""Bulk in by `fairscribe submit`: tables, lists, and what an interruption costs."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from pipeline.cli import patience
from pipeline.cli.journal import Journal, journal_folder
from pipeline.parts import Parts
from pipeline.store import jobs, views
from pipeline.store.session import transaction
from tests import driven
from tests.integration.conftest import Run
from tests.listening import each_job
from tests.servers import wait_until

CLI = str(Path(sys.executable).with_name("fairscribe"))

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(run: Run) -> Iterator[Start]:
    """Start `fairscribe ...` as a process of its own against the same API."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        started.append(subprocess.Popen([CLI, *words], stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def halted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], threading.Event]]:
    """Lets the API make that many jobs and then hold what comes until the event is set."""
    add_job = jobs.add_job
    events: list[threading.Event] = []

    def halt_after(count: int) -> threading.Event:
        go_on = threading.Event()
        events.append(go_on)
        made: list[None] = []

        def halting(*arguments: Any) -> None:
            made.append(None)
            if len(made) > count:
                go_on.wait()
            add_job(*arguments)

        monkeypatch.setattr(jobs, "add_job", halting)
        return go_on

    yield halt_after
    for event in events:
        event.set()


def recordings(folder: Path, count: int) -> list[str]:
    folder.mkdir(exist_ok=True)
    names = [f"call-{n:03}.wav" for n in range(count)]
    for name in names:
        (folder / name).write_bytes(name.encode())
    return names


def made(parts: Parts) -> list[str]:
    with transaction(parts.store) as c:
        return sorted(view.file_name for view in views.list_jobs(c, limit=1000))


def journals() -> list[Path]:
    return list(journal_folder().glob("*.jsonl"))


# -- what is sent ---------------------------------------------------------------------------


def test_a_table_with_five_broken_rows_sends_the_rest_and_names_the_five(
    run: Run, parts: Parts, tmp_path: Path
) -> None:
    names = recordings(tmp_path / "calls", 20)
    rows = [f"calls/{name},en,agent-{n}" for n, name in enumerate(names)]
    broken = [
        "calls/gone.wav,en,x",
        "calls/call-001.wav,klingon,x",
        ",en,x",
        "one field",
        '"open,en,x',
    ]
    for at, row in zip((2, 5, 9, 14, 20), broken, strict=True):
        rows.insert(at, row)
    table = tmp_path / "calls.csv"
    table.write_text("\n".join(["file,language,agent", *rows]) + "\n")

    ran = run("submit", "--manifest", str(table), "--metadata", "day=monday", "--json")

    assert ran.code == 1
    assert made(parts) == [f"calls/{name}" for name in names]
    assert [one["line"] for one in ran.json["not_sent"]] == [4, 7, 11, 16, 22]
    for line, word in zip(
        (4, 7, 11, 16, 22), ("no such", "klingon", "no file", "fields", "quote"), strict=True
    ):
        assert any(f"(line {line})" in said and word in said for said in ran.err.splitlines())
    whole = {job["file_name"]: job for job in run("list", "--json").json["jobs"]}
    assert whole["calls/call-007.wav"]["metadata"] == {"agent": "agent-7", "day": "monday"}

    # corrected and run again, only what was missing goes, into the same batch
    (tmp_path / "calls" / "gone.wav").write_bytes(b"here")
    table.write_text(
        "\n".join(
            ["file,language,agent", *rows[:5], *rows[6:9], *rows[10:14], *rows[15:20], *rows[21:]]
        )
    )
    again = run("submit", "--manifest", str(table), "--metadata", "day=monday", "--json")
    assert (again.code, again.json["batch_id"]) == (0, ran.json["batch_id"])
    assert (again.json["resumed"], len(again.json["jobs"])) == (20, 21)
    assert made(parts) == sorted([*(f"calls/{name}" for name in names), "calls/gone.wav"])
    assert journals() == []


@pytest.mark.parametrize(("null", "end"), [(False, "\n"), (True, "\0")])
def test_a_list_on_stdin_is_sent(
    run: Run, parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, null: bool, end: str
) -> None:
    names = recordings(tmp_path, 3)
    listed = io.TextIOWrapper(io.BytesIO(end.join(f"{tmp_path}/{n}" for n in names).encode()))
    monkeypatch.setattr(sys, "stdin", listed)
    ran = run("submit", "-", *(["--null"] if null else []), "--json")
    assert (ran.code, made(parts)) == (0, names)


def test_urls_are_left_to_the_service_and_what_is_none_is_told(
    run: Run, parts: Parts, tmp_path: Path
) -> None:
    url = "https://calls.example/monday/y%20z.wav?k=1"
    names = recordings(tmp_path, 1)
    words = (
        "submit",
        url,
        f"{tmp_path}/{names[0]}",
        "https://:x",
        "--batch-id",
        "monday",
        "--json",
    )
    ran = run(*words)
    assert (ran.code, len(ran.json["jobs"]), ran.json["not_sent"][0]["path"]) == (
        1,
        2,
        "https://:x",
    )
    whole = run("list", "--json").json["jobs"]
    assert sorted(job["source_url"] or "" for job in whole) == ["", url]
    again = run(*words)
    assert (again.json["resumed"], again.json["jobs"]) == (2, ran.json["jobs"])


def test_a_folder_below_that_cannot_be_read_is_named(
    alone: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recordings(tmp_path / "calls", 1)
    monkeypatch.chdir(tmp_path / "calls")
    for _ in range(20):  # a path longer than the system takes: nobody may read that, root neither
        os.mkdir("d" * 250)
        os.chdir("d" * 250)
    Path("deep.wav").write_bytes(b"x")
    ran = alone("submit", f"{tmp_path}/calls", "--dry-run", "--json")
    assert (ran.code, len(ran.json["recordings"])) == (1, 1)
    assert [one["reason"] for one in ran.json["not_sent"]] == ["File name too long"]


def test_a_rehearsal_sends_nothing_and_needs_no_service(alone: Run, tmp_path: Path) -> None:
    recordings(tmp_path / "calls", 2)
    ran = alone(
        "submit", f"{tmp_path}/calls", f"{tmp_path}/gone", "--dry-run", "--language", "es", "--json"
    )
    assert ran.code == 1
    assert [(row["language"], row["sent"]) for row in ran.json["recordings"]] == [("es", False)] * 2
    assert journals() == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--language", "English"),
        ("--task", "sing"),
        ("--speakers", "one"),
        ("--raw-format", "mp3"),
        ("--metadata", "k"),
        ("--manifest", "/none"),
    ],
)
def test_an_option_that_cannot_be_meant_is_misuse(
    alone: Run, tmp_path: Path, option: str, value: str
) -> None:
    recordings(tmp_path, 1)
    ran = alone("submit", str(tmp_path), option, value)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert value in ran.err


def test_names_and_words_that_are_not_utf_8_are_sent_or_refused_but_break_nothing(
    run: Run, parts: Parts, tmp_path: Path
) -> None:
    name = os.fsdecode(b"\xff.wav")
    (tmp_path / name).write_bytes(b"x")
    assert run("submit", f"{tmp_path}/{name}", f"{tmp_path}/{name}2", "--json").code == 1
    assert made(parts) == ["\ufffd.wav"]
    for words in (("--metadata", f"k={name}"), ("--batch-id", name)):
        ran = run("submit", f"{tmp_path}/{name}", *words)
        assert (ran.code, ran.err) == (2, "What was asked is not UTF-8.\n")
    assert run("get", name).code == run("batch", name).code == 1


# -- interruptions --------------------------------------------------------------------------


def test_killed_at_half_and_run_again_each_is_sent_exactly_once(
    run: Run, start: Start, halted: Callable[[int], threading.Event], parts: Parts, tmp_path: Path
) -> None:
    names = recordings(tmp_path / "calls", 40)
    go_on = halted(20)
    killed = start("submit", f"{tmp_path}/calls")
    wait_until(lambda: len(made(parts)) == 20, 20, "half of them are jobs")
    time.sleep(0.2)  # four more are in the API's hands when their sender dies
    killed.kill()
    killed.wait()
    go_on.set()
    wait_until(lambda: len(made(parts)) >= 24, 20, "what was in hand became jobs too")

    ran = run("submit", f"{tmp_path}/calls", "--json")

    assert ran.code == 0, ran.err
    assert "resuming batch" in ran.err
    assert made(parts) == names
    assert len(ran.json["jobs"]) == 40
    assert {job["batch_id"] for job in run("list", "--json").json["jobs"]} == {ran.json["batch_id"]}
    assert journals() == []


def test_ctrl_c_ends_at_once_and_says_how_to_go_on(
    run: Run, start: Start, halted: Callable[[int], threading.Event], parts: Parts, tmp_path: Path
) -> None:
    names = recordings(tmp_path / "calls", 12)
    go_on = halted(6)
    stopped = start("submit", f"{tmp_path}/calls", "--batch-id", "monday")
    wait_until(lambda: len(made(parts)) == 6, 20, "some are jobs")
    time.sleep(0.2)
    begun_s = time.monotonic()
    stopped.send_signal(signal.SIGINT)
    _, said = stopped.communicate(timeout=10)
    # it would wait for ever for the uploads in hand; a second is its own, the rest a busy machine's
    assert time.monotonic() - begun_s < 8.0
    assert stopped.returncode == 130
    assert (
        said
        == "interrupted: 6 of 12 were sent, batch monday; the same command sends what is missing\n"
    )
    go_on.set()

    ran = run("submit", f"{tmp_path}/calls", "--batch-id", "monday", "--json")

    assert "resuming batch monday: 6 of 12 were sent" in ran.err
    assert (ran.code, made(parts)) == (0, names)


def test_from_another_machine_the_same_batch_is_answered_with_the_same_jobs(
    run: Run, parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = recordings(tmp_path, 3)
    monkeypatch.chdir(tmp_path)
    first = run("submit", *names, "--batch-id", "monday", "--json")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    (tmp_path / "more.wav").write_bytes(b"more")

    second = run("submit", *names, "more.wav", "--batch-id", "monday", "--json")

    assert second.json["jobs"][:3] == first.json["jobs"]
    assert made(parts) == [*names, "more.wav"]


def test_a_file_that_changed_since_is_told_and_sent_as_another(
    run: Run, start: Start, halted: Callable[[int], threading.Event], parts: Parts, tmp_path: Path
) -> None:
    recordings(tmp_path / "calls", 4)
    go_on = halted(2)
    killed = start("submit", f"{tmp_path}/calls", "--parallel", "1")
    wait_until(lambda: len(made(parts)) == 2 and b"call-001" in journals()[0].read_bytes(), 20, "2")
    killed.kill()
    killed.wait()
    go_on.set()
    (tmp_path / "calls" / "call-000.wav").write_bytes(b"another recording")

    ran = run("submit", f"{tmp_path}/calls", "--json")

    assert "it changed since it was sent and goes again" in ran.err
    assert made(parts) == ["call-000.wav", *(f"call-{n:03}.wav" for n in range(4))]


def test_of_two_at_once_the_second_is_told(run: Run, tmp_path: Path) -> None:
    recordings(tmp_path / "calls", 1)
    (tmp_path / "calls" / "empty.wav").touch()
    (tmp_path / "calls" / "gone").symlink_to("nowhere")
    run("submit", f"{tmp_path}/calls/call-000.wav", f"{tmp_path}/calls/gone")  # leaves its journal
    (journal,) = journals()
    with Journal(journal, "x"):
        ran = run("submit", f"{tmp_path}/calls/call-000.wav", f"{tmp_path}/calls/gone")
    assert ran.code == 1
    assert "is being sent by another process" in ran.err


def test_a_journal_cut_off_in_the_middle_of_a_line_is_read_as_far_as_it_goes(
    alone: Run, tmp_path: Path
) -> None:
    from pipeline.cli.journal import Sent

    path = tmp_path / "j.jsonl"
    with Journal(path, "monday") as journal:
        for n in range(3):
            journal.note(Sent(f"{n}.wav", f"key{n}", {"id": str(n)}))
    os.truncate(path, path.stat().st_size - 9)
    with Journal(path, "tuesday") as journal:
        assert (journal.batch_id, journal.resumes, list(journal.sent)) == (
            "monday",
            True,
            ["key0", "key1"],
        )
        journal.note(Sent("2.wav", "key2", {"id": "2"}))
    with Journal(path, "tuesday") as journal:
        assert list(journal.sent) == ["key0", "key1", "key2"]


def test_what_a_service_set_up_anew_does_not_know_is_sent_again(
    run: Run, parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy import text

    words = ("submit", *recordings(tmp_path, 2), "gone.wav")
    monkeypatch.chdir(tmp_path)
    assert run(*words).code == 1
    with transaction(parts.store) as c:
        c.execute(text("TRUNCATE jobs, submissions CASCADE"))
    assert run(*words, "--json").json["resumed"] == 0
    assert len(made(parts)) == 2
    assert run(*words, "--json").json["resumed"] == 2
    assert run(*words, "--anew", "--json").json["resumed"] == 0


# -- patience -------------------------------------------------------------------------------


def test_a_service_away_for_a_while_is_waited_for(
    run: Run, parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.errors import PartDown

    monkeypatch.setattr("pipeline.api.problems.RETRY_AFTER_S", 0)
    names = recordings(tmp_path, 6)
    add_job, calls = jobs.add_job, []

    def failing(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) in (1, 2, 5):
            raise PartDown("Postgres does not answer: x")
        add_job(*arguments)

    monkeypatch.setattr(jobs, "add_job", failing)
    ran = run("submit", str(tmp_path), "--json")
    assert (ran.code, made(parts), len(calls)) == (0, names, 9)


def test_a_service_away_for_too_long_is_given_up_with_what_is_missing(
    run: Run, parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.errors import PartDown

    monkeypatch.setattr("pipeline.api.problems.RETRY_AFTER_S", 0)
    monkeypatch.setattr(patience, "PATIENCE_S", 0.3)
    names = recordings(tmp_path / "calls", 30)
    add_job, calls = jobs.add_job, []

    def failing(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) > 10:
            raise PartDown("Postgres does not answer: x")
        add_job(*arguments)

    monkeypatch.setattr(jobs, "add_job", failing)
    begun_s = time.monotonic()
    ran = run("submit", f"{tmp_path}/calls", "--json")
    assert time.monotonic() - begun_s < 5
    assert (ran.code, len(made(parts)), len(ran.json["not_sent"])) == (2, 10, 20)
    assert "not sent: 10 more" in ran.err
    assert "10 of 30 were sent" in ran.err

    monkeypatch.setattr(jobs, "add_job", add_job)
    assert run("submit", f"{tmp_path}/calls").code == 0
    assert made(parts) == names


@pytest.fixture
def capped(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that takes in 3.6 s of audio, and says to come again at once."""
    environ["FAIRSCRIBE_MAX_BACKLOG_H"] = "0.001"
    monkeypatch.setattr("pipeline.api.backlog.KEPT_S", 0.0)
    for name in ("UNKNOWN_S", "SOONEST_S"):
        monkeypatch.setattr(f"pipeline.api.backlog.{name}", 0.0)


@pytest.mark.usefixtures("capped")
def test_a_service_that_takes_no_more_for_now_is_waited_for_however_long_it_says_so(
    run: Run, parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0.1)
    (tmp_path / "calls").mkdir()
    for n in range(3):
        (tmp_path / "calls" / f"{n}.wav").write_bytes(b"x" * 20_000)  # 2.5 s, unheard

    def slowly(parts: Parts, job_id: str) -> None:
        time.sleep(0.5)
        driven.failed(parts, job_id)

    with each_job(parts, slowly) as ended:
        ran = run("submit", f"{tmp_path}/calls", "--json")
    assert (ran.code, len(ran.json["jobs"]), ran.json["not_sent"]) == (0, 3, [])
    assert len(ended) >= 2
    assert ran.err.count("waiting: ") == 1
    assert "h of audio wait here" in ran.err


def test_what_a_proxy_says_is_waited_out_or_costs_one_file(
    alone: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recordings(tmp_path / "calls", 3)
    (tmp_path / "calls" / "large.wav").write_bytes(b"too large")
    keys: list[str] = []

    async def proxy(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        status, answer = 200, b'{"status": "ok"}'
        if scope["method"] == "POST":
            keys.append(dict(scope["headers"])[b"idempotency-key"].decode())
            job = {"id": keys[-1], "file_name": "x", "status": "queued", "error": None}
            status, answer = 202, json.dumps({"batch_id": "b", "jobs": [job]}).encode()
            if b"too large" in body:
                status, answer = 413, b"<html>"
            elif len(keys) == 1:
                status, answer = 502, b"<html>"
        headers = [(b"retry-after", b"0")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    line = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(proxy, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [line]})
    thread.start()
    monkeypatch.setenv("FAIRSCRIBE_API_URL", f"http://127.0.0.1:{line.getsockname()[1]}")
    try:
        ran = alone("submit", f"{tmp_path}/calls", "--json")
    finally:
        server.should_exit = True
        thread.join()
        line.close()
    assert (ran.code, len(ran.json["jobs"]), len(keys), len(set(keys))) == (1, 3, 5, 4)
    (one,) = ran.json["not_sent"]
    assert one["path"].endswith("large.wav")
    assert "takes no file as large" in one["reason"]
