"""Bulk out: `fairscribe export`, watch and batch, with jobs moved by hand."""

from __future__ import annotations

import csv
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from pipeline.cli import service as service_of_cli
from pipeline.cli.export import INDEX
from pipeline.errors import PartDown
from pipeline.parts import Parts
from pipeline.store import views
from pipeline.store.session import transaction
from tests import driven
from tests.integration.conftest import Run

TEXT = "left: Grüße!\nright: Hello 🙂.\n"


def done(parts: Parts, name: str, batch: str = "monday") -> str:
    job_id = driven.received(parts, name, batch)
    driven.completed(parts, job_id)
    return job_id


def files(folder: Path) -> dict[str, str]:
    there = (path for path in folder.rglob("*") if path.is_file() and path.name != INDEX)
    return {str(path.relative_to(folder)): path.read_text("utf-8") for path in there}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The transcripts that were asked for."""
    paths: list[str] = []
    get_text = service_of_cli.Service.get_text

    def noted(self: Any, path: str, **how: Any) -> str:
        paths.append(path)
        return get_text(self, path, **how)

    monkeypatch.setattr(service_of_cli.Service, "get_text", noted)
    return paths


def test_each_recording_becomes_a_file_named_after_it_and_stays_in_the_folder(
    run: Run, parts: Parts, tmp_path: Path
) -> None:
    for name in ("a/call.wav", "call.wav", "call.mp3", "../../etc/passwd", "CON.wav", "x\n.wav"):
        done(parts, name)

    ran = run("export", "monday", "--to", f"{tmp_path}/out")

    assert ran.code == 0, ran.err
    assert ran.out == "6 written, 0 were there, 0 are missing\n"
    names = ["a/call.txt", "call.txt", "call-2.txt", "etc/passwd.txt", "_CON.txt", "x_.txt"]
    assert files(tmp_path / "out") == dict.fromkeys(names, TEXT)


def test_run_again_only_what_is_missing_is_asked_for(
    run: Run, parts: Parts, tmp_path: Path, asked: list[str]
) -> None:
    out = tmp_path / "out"
    first = [done(parts, f"{n}.wav") for n in range(3)]
    late = driven.received(parts, "late.wav", "monday")
    driven.failed(parts, driven.received(parts, "bad.wav", "monday"))

    ran = run("export", "monday", "--to", str(out))
    assert (ran.code, ran.out) == (1, "3 written, 0 were there, 2 are missing\n")
    assert "not written: late.wav: it is queued" in ran.err
    assert "not written: bad.wav: The file is not audio" in ran.err

    driven.completed(parts, late)
    (out / "1.txt").unlink()
    asked.clear()
    told = run("export", "monday", "--to", str(out), "--json").json["recordings"]
    assert sorted(asked) == sorted(f"/v1/jobs/{job_id}/transcript" for job_id in (first[1], late))
    assert [(one["path"], one["fresh"]) for one in told] == [
        ("0.txt", False),
        ("1.txt", True),
        ("2.txt", False),
        ("late.txt", True),
        (None, False),
    ]

    asked.clear()
    run("export", "monday", "--to", str(out), "--overwrite")
    assert len(asked) == 4


def test_another_batch_in_the_same_folder_is_not_taken_for_done(
    run: Run, parts: Parts, tmp_path: Path
) -> None:
    done(parts, "call.wav")
    done(parts, "call.wav", "tuesday")
    (tmp_path / "mine.txt").write_text("my own")
    done(parts, "mine.wav", "tuesday")
    assert run("export", "monday", "--to", str(tmp_path)).code == 0
    ran = run("export", "tuesday", "--to", str(tmp_path))
    assert ran.code == 1
    assert ran.err.count("is there and not of this job: --overwrite replaces it") == 2
    assert (tmp_path / "mine.txt").read_text() == "my own"
    assert run("export", "tuesday", "--to", str(tmp_path), "--overwrite").code == 0
    assert run("export", "tuesday", "--to", str(tmp_path)).out.startswith("0 written, 2 were there")


def test_on_a_full_disk_the_file_before_is_not_taken_for_the_new_one(
    run: Run, parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(parts, "call.wav")
    export = ("export", "monday", "--to", f"{tmp_path}/out")
    assert run(*export).code == 0
    with transaction(parts.store) as c:  # as after a retry
        c.execute(text("UPDATE jobs SET completed_at = now()"))
    with monkeypatch.context() as full:
        full.setattr("tempfile.mkstemp", lambda **_: (os.open("/dev/full", os.O_WRONLY), ""))
        ran = run(*export, "--overwrite")
    assert (ran.code, "No space left on device" in ran.err) == (1, True)
    again = run(*export)
    assert (again.code, "not of this job" in again.err) == (1, True)


def test_a_batch_nobody_knows_a_format_and_a_folder_that_cannot_be(
    run: Run, parts: Parts, tmp_path: Path
) -> None:
    assert run("export", "none", "--to", str(tmp_path)).code == 1
    done(parts, "call.wav")
    (tmp_path / "file").touch()
    for format in ("txt", "csv"):
        ran = run("export", "monday", "--to", f"{tmp_path}/file", "--format", format)
        assert (ran.code, len(ran.err.splitlines())) == (2, 1)
        assert "cannot be written" in ran.err
    assert run("export", "monday", "--to", str(tmp_path), "--format", "doc").code == 2


def test_export_waits_until_all_have_ended(run: Run, parts: Parts, tmp_path: Path) -> None:
    late = driven.received(parts, "late.wav", "monday")
    worker = threading.Timer(0.5, driven.completed, (parts, late))
    worker.start()
    ran = run("export", "monday", "--to", f"{tmp_path}/out", "--format", "json", "--wait")
    worker.join()
    assert ran.code == 0, ran.err
    assert json.loads(files(tmp_path / "out")["late.json"])["job_id"] == late


@pytest.mark.parametrize("format", ["txt", "csv"])
def test_a_service_away_for_a_while_is_waited_for(
    run: Run, parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    monkeypatch.setattr("pipeline.api.problems.RETRY_AFTER_S", 0)
    for name in ("a.wav", "b.wav", "c.wav"):
        done(parts, name)
    body, asked = views.transcript_body, []

    def failing(*arguments: Any) -> Any:
        asked.append(1)
        if len(asked) <= 3:
            raise PartDown("Postgres does not answer: x")
        return body(*arguments)

    monkeypatch.setattr(views, "transcript_body", failing)
    ran = run("export", "monday", "--to", str(tmp_path), "--format", format)
    assert (ran.code, len(asked)) == (0, 6), ran.err


def test_a_table_has_a_row_a_recording_with_its_metadata_and_no_formulas(
    run: Run, parts: Parts, tmp_path: Path
) -> None:
    for name, metadata in (
        ("=cmd|'/C calc'!A0.wav", '{"agent": "7"}'),
        ('b;,"\n.wav', '{"@x": "-1", "more": ["ä", null]}'),
    ):
        (tmp_path / "one.wav").write_bytes(b"x")
        made = run("submit", f"{tmp_path}/one.wav", "--batch-id", name[:3], "--json").json
        job_id = made["jobs"][0]["id"]
        _rename(parts, job_id, name, metadata)
        driven.completed(parts, job_id)
    driven.failed(parts, driven.received(parts, "bad.wav", "monday"))

    ran = run("export", "monday", "--to", str(tmp_path), "--format", "csv")

    assert ran.code == 1
    with (tmp_path / "monday.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["file_name"] for row in rows] == ["'=cmd|'/C calc'!A0.wav", 'b;,"\n.wav', "bad.wav"]
    assert [row["text"] for row in rows] == ["Grüße! Hello 🙂.", "Grüße! Hello 🙂.", ""]
    assert [row["metadata.agent"] for row in rows] == ["7", "", ""]
    assert [row["metadata.@x"] for row in rows] == ["", "'-1", ""]
    assert [row["metadata.more"] for row in rows] == ["", '["ä", null]', ""]
    assert rows[2]["error_code"] == "not_audio"
    assert rows[0]["duration_s"] == "4.0"


def _rename(parts: Parts, job_id: str, name: str, metadata: str) -> None:
    from sqlalchemy import text

    with parts.store.begin() as c:
        c.execute(
            text(
                "UPDATE jobs SET file_name = :n, metadata = :m, batch_id = 'monday' WHERE id = :i"
            ),
            {"n": name, "m": metadata, "i": job_id},
        )


def test_a_table_of_segments_has_a_row_each(run: Run, parts: Parts, tmp_path: Path) -> None:
    done(parts, "a.wav")
    done(parts, "b.wav")
    assert run("export", "monday", "--to", str(tmp_path), "--format", "csv", "--segments").code == 0
    with (tmp_path / "monday.segments.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    told = [(row["file_name"], row["speaker"], row["text"]) for row in rows]
    assert told == [
        (n, s, t)
        for n in ("a.wav", "b.wav")
        for s, t in (("left", "Grüße!"), ("right", "Hello 🙂."))
    ]
    assert all(float(row["start_s"]) < float(row["end_s"]) for row in rows)


# -- watch, batch ---------------------------------------------------------------------------


def test_watch_follows_a_batch_jobs_or_everything(run: Run, parts: Parts) -> None:
    ended = done(parts, "ended.wav")
    for words in (["monday"], None, []):
        late = driven.received(parts, "late.wav", "monday")
        worker = threading.Timer(1.0, driven.completed, (parts, late))
        worker.start()
        ran = run("watch", *([late, ended] if words is None else words), "--json")
        worker.join()
        assert ran.code == 0, ran.err
        told = {job["id"]: job["status"] for job in ran.json["jobs"]}
        assert told[late] == "completed"
    assert run("watch").out == "0 of 0 completed\n"
    assert run("watch", "nothing-of-this-name").code == 1


def test_watch_ends_with_1_when_one_failed(run: Run, parts: Parts) -> None:
    job_id = driven.received(parts, "bad.wav", "monday")
    driven.failed(parts, job_id)
    assert run("watch", job_id).code == 1
    assert run("watch", "monday").out == "0 of 1 completed\n"


def test_a_batch_is_shown_with_its_counts(run: Run, parts: Parts) -> None:
    done(parts, "a.wav")
    driven.received(parts, "b.wav", "monday")
    counts = run("batch", "monday", "--json").json["counts"]
    assert (counts["completed"], counts["queued"]) == (1, 1)
    assert "1 completed" in run("batch", "monday").out
    assert run("batch", "nobody").code == 1
