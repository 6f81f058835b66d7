"""Whether a known vulnerability is in what the locks install: `python -m bench.audit PLACE`.

In: the locks of requirements/, and a database of advisories as the Python Packaging Authority keeps
it (files `vulns/NAME/ID.yaml` in OSV's form): a folder, a zip, or the URL of a zip, fetched in one
request, so that nobody learns what is installed here. Out: a line for each vulnerability and exit
code 1, or one that says how many packages were audited. Where no database is to be had it says so,
and that is no failure. requirements/accepted.toml names what was looked at and is lived with.
"""

from __future__ import annotations

import io
import re
import ssl
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import yaml
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements"
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)
FETCH_WITHIN_S = 10.0


@dataclass(frozen=True)
class Found:
    """A vulnerability of something we install."""

    package: str
    version: str
    advisory: str
    known_as: frozenset[str]
    fixed: str


def pins(requirements: Path = REQUIREMENTS) -> set[tuple[str, str]]:
    """Every (name, version) any lock installs; what follows a + is a build, not a version."""
    texts = [lock.read_text("utf-8") for lock in sorted(requirements.glob("*.txt"))]
    found = [pin for text in texts for pin in PIN.findall(text)]
    return {(canonicalize_name(name), version.partition("+")[0]) for name, version in found}


def advisories(place: str, names: set[str]) -> Iterator[dict[str, Any]]:
    """What is known of `names`. Raises OSError, httpx.HTTPError or BadZipFile: there is no such
    database.
    """
    read: dict[str, Callable[[], bytes]]
    if Path(place).is_dir():
        read = {path.as_posix(): path.read_bytes for path in Path(place).rglob("vulns/*/*.yaml")}
    else:
        content = _fetched(place) if "://" in place else Path(place).read_bytes()
        archive = zipfile.ZipFile(io.BytesIO(content))
        read = {name: partial(archive.read, name) for name in archive.namelist()}
    for path, content_of in read.items():
        match = re.search(r"vulns/([^/]+)/[^/]+\.yaml$", path)
        if match and canonicalize_name(match[1]) in names:
            yield yaml.load(content_of(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def vulnerable(pinned: set[tuple[str, str]], known: Iterator[dict[str, Any]]) -> list[Found]:
    """What of `pinned` is affected."""
    versions: dict[str, list[str]] = {}
    for name, version in sorted(pinned):
        versions.setdefault(name, []).append(version)
    found = []
    for advisory in known:
        if advisory.get("withdrawn"):
            continue
        names = frozenset([advisory["id"], *advisory.get("aliases", [])])
        for affected in advisory.get("affected", []):
            package = canonicalize_name(affected["package"]["name"])
            for version in versions.get(package, []):
                if _is_in(version, affected):
                    found.append(Found(package, version, advisory["id"], names, _fixed(affected)))
    return found


def _is_in(version: str, affected: Mapping[str, Any]) -> bool:
    if version in affected.get("versions", []):
        return True
    ranges = [r["events"] for r in affected.get("ranges", []) if r["type"] == "ECOSYSTEM"]
    return any(_inside(Version(version), events) for events in ranges)


def _inside(version: Version, events: list[dict[str, str]]) -> bool:
    """Whether the last event at or before `version` opened the range.

    >>> [_inside(Version(v), [{"introduced": "0"}, {"fixed": "2"}]) for v in ("1.9", "2", "3")]
    [True, False, False]
    """
    inside = False
    try:
        for event in sorted(events, key=lambda e: Version(next(iter(e.values())))):
            ((what, where),) = event.items()
            if what == "introduced" and version >= Version(where):
                inside = True
            elif (what == "fixed" and version >= Version(where)) or (
                what == "last_affected" and version > Version(where)
            ):
                inside = False
    except InvalidVersion:
        return False  # the list of versions decides
    return inside


def _fixed(affected: Mapping[str, Any]) -> str:
    events = [event for one in affected.get("ranges", []) for event in one["events"]]
    fixes = [event["fixed"] for event in events if "fixed" in event]
    return f"fixed in {', '.join(fixes)}" if fixes else "not fixed"


def accepted(today: date, requirements: Path = REQUIREMENTS) -> set[str]:
    """Advisories that somebody looked at, with a reason, and not yet to be looked at again."""
    read = tomllib.loads((requirements / "accepted.toml").read_text("utf-8"))
    return {
        one["id"] for one in read.get("accepted", []) if one["reason"] and one["until"] >= today
    }


def _fetched(url: str) -> bytes:
    asked = [sys.executable, "-m", "pip", "config", "get", "global.cert"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    trusted = ssl.create_default_context(cafile=told or None)
    with httpx.Client(verify=trusted, timeout=FETCH_WITHIN_S, follow_redirects=True) as client:
        return client.get(url).raise_for_status().content


def main(words: list[str], today: date | None = None) -> int:
    """The exit code: 1 for a vulnerability nobody accepted."""
    pinned = pins()
    try:
        known = list(advisories(words[0], {name for name, _ in pinned}))
    except (OSError, httpx.HTTPError, zipfile.BadZipFile, IndexError) as error:
        why = type(error).__name__
        print(f"not audited: no database of advisories answered ({why})", file=sys.stderr)
        return 0
    lived_with = accepted(today or date.today())
    found = [one for one in vulnerable(pinned, iter(known)) if not one.known_as & lived_with]
    for one in sorted(found, key=lambda f: (f.package, f.advisory)):
        print(f"{one.package} {one.version}: {one.advisory}, {one.fixed}", file=sys.stderr)
    if not found:
        newest = max((str(one.get("modified", ""))[:10] for one in known), default="never")
        said = f"{len(pinned)} packages, {len(known)} advisories about them, the newest of {newest}"
        print(f"{said}: none is vulnerable")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
