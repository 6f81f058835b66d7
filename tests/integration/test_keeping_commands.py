"""The commands about what is kept, as people type them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.parts import Parts
from tests import driven
from tests.integration.conftest import Run
from tests.integration.test_erase import left, of_person
from tests.integration.test_retire import ended


def test_retention_tells_what_is_due_and_erases_nothing(
    run: Run, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = {ended(parts, 31), ended(parts, 29)}
    monkeypatch.setenv("FAIRSCRIBE_KEEP_AUDIO_DAYS", "30")
    told = {one["what"]: one for one in run("retention", "--json").json["kept"]}
    recordings = {"what": "recordings", "setting": "keep_audio_days", "days": 30.0, "due": 1}
    assert told["recordings"] == recordings
    assert told["transcripts"]["days"] is None
    out = run("retention").out
    assert "for ever" in out
    assert "30 days" in out
    assert left(parts) == ids
    assert len(parts.storage.keys("recordings")) == 2


def test_erase_counts_first_and_asks_and_elsewhere_needs_to_be_told(
    run: Run, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = [of_person(parts, {"customer_id": 42}) for _ in range(2)]
    other = of_person(parts, {"customer_id": 43})
    who = ("erase", "--metadata", "customer_id=42")
    assert run(*who, "--dry-run", "--json").json == {"found": 2, "erased": 0}
    ran = run(*who)
    assert ran.code == 2
    assert "say --yes" in ran.err
    assert left(parts) == {*mine, other}
    assert run(*who, "--yes", "--json").json == {"found": 2, "erased": 2}
    assert left(parts) == {other}
    assert run(*who, "--yes").out == "0 found, 0 erased\n"


@pytest.mark.parametrize(
    "words", [(), ("--metadata", "customer_id"), ("--metadata", "=42"), ("--metadata", "a=")]
)
def test_erase_refuses_what_names_nobody(run: Run, parts: Parts, words: tuple[str, ...]) -> None:
    job_id = of_person(parts, {"a": ""})
    assert run("erase", *words, "--yes").code == 2
    assert left(parts) == {job_id}


def test_a_backup_is_made_added_to_and_refused_where_there_are_jobs(
    run: Run, parts: Parts, tmp_path: Path
) -> None:
    kept, erased = driven.received(parts), driven.received(parts)
    folder = str(tmp_path / "backup")
    assert run("backup", folder, "--json").json == {
        "jobs": 2,
        "files": 2,
        "bytes": 8,
        "tombstones": 0,
    }
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o700
    run("delete", erased, "--yes")
    assert run("backup", folder, "--erased-only").out == "1 tombstones\n"
    refused = run("restore", folder)
    assert refused.code == 2
    assert "There are jobs here" in refused.err
    run("delete", kept, "--yes")
    told = run("restore", folder, "--json").json
    assert (told["jobs"], told["erased_again"]) == (2, 2)
    assert left(parts) == set()


def test_a_folder_that_is_no_backup_or_cannot_be_written_is_one_sentence(
    run: Run, parts: Parts, tmp_path: Path
) -> None:
    assert "is no backup" in run("restore", str(tmp_path)).err
    (tmp_path / "file").write_text("")
    ran = run("backup", str(tmp_path / "file" / "below"))
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    assert run("restore", str(tmp_path), "--erased", str(tmp_path / "nowhere")).code == 2
