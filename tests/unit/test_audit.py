"""The locks: every line has a hash, and a known vulnerability in them is found."""

from __future__ import annotations

import re
import zipfile
from datetime import date
from pathlib import Path

import pytest
import yaml

from bench import audit

ADVISORY = {
    "id": "PYSEC-2099-1",
    "aliases": ["CVE-2099-1"],
    "affected": [
        {
            "package": {"name": "Tornado", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "1"}, {"fixed": "99"}]}],
            "versions": ["1.0"],
        }
    ],
}


def database(folder: Path, **changed: object) -> str:
    """A zip as a forge makes one: everything under one folder."""
    place = folder / "advisories.zip"
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("db-main/vulns/tornado/1.yaml", yaml.safe_dump({**ADVISORY, **changed}))
        archive.writestr("db-main/vulns/nobody-has-it/2.yaml", "not: [yaml")
    return str(place)


@pytest.mark.parametrize("lock", sorted(audit.REQUIREMENTS.glob("*.txt")), ids=lambda p: p.stem)
def test_every_requirement_of_a_lock_has_a_version_and_a_hash(lock: Path) -> None:
    lines = [line for line in lock.read_text().splitlines() if line.strip()]
    requirements = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    parts = re.split(r"\n(?=\S)", requirements)
    assert parts
    pinned = r"\S+==\S+( ; .+)? \\(\n    --hash=sha256:[0-9a-f]{64}( \\)?)+"
    assert [part for part in parts if not re.fullmatch(pinned, part)] == []


def test_a_known_vulnerability_is_told_with_its_cure_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.main([database(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert re.fullmatch(r"tornado [\d.]+: PYSEC-2099-1, fixed in 99\n", told)


def test_what_is_fixed_here_or_was_withdrawn_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fixed = [{"package": {"name": "tornado"}, "versions": ["1.0"]}]
    for changed in ({"affected": fixed}, {"withdrawn": "2099-01-01T00:00:00Z"}):
        assert audit.main([database(tmp_path, **changed)]) == 0
        assert "none is vulnerable" in capsys.readouterr().out


def test_what_somebody_accepted_is_passed_over_until_its_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "accepted.toml").write_text(
        '[[accepted]]\nid = "CVE-2099-1"\nreason = "Not called."\nuntil = 2099-01-31\n'
    )
    accepted = audit.accepted
    monkeypatch.setattr(audit, "accepted", lambda today: accepted(today, tmp_path))
    assert audit.main([database(tmp_path)], date(2099, 1, 31)) == 0
    assert audit.main([database(tmp_path)], date(2099, 2, 1)) == 1


@pytest.mark.parametrize("place", ["http://127.0.0.1:1/x.zip", "/nowhere.zip", None])
def test_without_a_database_it_says_so_and_fails_nothing(
    place: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.main([place] if place else []) == 0
    assert capsys.readouterr().err.startswith("not audited: no database of advisories answered")
