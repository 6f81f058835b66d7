"""Checks of this machine: Python, the state folder, ports, memory."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path

from pipeline.cli.checks.verdict import Here, Verdict, fine, problem

PYTHON = (3, 11)
"""What the locked requirements are for."""

FREE_GB = 2.0
"""So much should be free for recordings, the servers' data and logs."""

SHM_MB = 512
"""What the engine's processes share; containers have 64 unless told otherwise."""

ENGINE_GIB = 2.0
"""What an engine needs beside its attention cache: the program and a small model."""

GIB, MB, GB = 1 << 30, 10**6, 10**9


def python(here: Here, version: tuple[int, ...] = sys.version_info[:3]) -> Verdict:
    """The version this is made for."""
    said = f"Python is {'.'.join(map(str, version))}."
    if version[:2] == PYTHON:
        return fine("python", said)
    wanted = ".".join(map(str, PYTHON))
    return problem("python", said, f"Install Python {wanted} and run `make setup` again.")


def state_folder(here: Here) -> Verdict:
    """Home can be written and has room."""
    home = here.settings.home.expanduser()
    place = next(folder for folder in (home, *home.absolute().parents) if folder.exists())
    try:
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        cure = "Free space there" if full else "Run as its owner or change its owner"
        said = f"The state folder {home} cannot be written ({error.strerror})."
        return problem("state_folder", said, f"{cure}, or set FAIRSCRIBE_HOME to another folder.")
    free_gb = shutil.disk_usage(place).free / GB
    said = f"The state folder {home} can be written, {free_gb:.1f} GB are free."
    if free_gb < FREE_GB:
        cure = f"Free {FREE_GB:g} GB, or set FAIRSCRIBE_HOME to a folder with more room."
        return problem("state_folder", said, cure)
    return fine("state_folder", said)


def ports(here: Here) -> Verdict:
    """Where the API and Flower are to listen nobody else does."""
    if here.up:
        return fine(
            "ports", f"Our own parts listen: {here.up.get('api')}, {here.up.get('flower')}."
        )
    if here.settings.api_url is not None:
        return fine("ports", "The API runs elsewhere (FAIRSCRIBE_API_URL).")
    host = here.settings.api_host
    for name in ("api_port", "flower_port"):
        port = getattr(here.settings, name)
        if (why := _why_taken(host, port)) is not None:
            variable = f"FAIRSCRIBE_{name.upper()}"
            cure = f"Stop what listens there, or set {variable}=0 to take a free one."
            return problem("ports", f"Port {port} at {host} cannot be had ({why}).", cure)
    return fine("ports", "The ports of the API and Flower are free.")


def _why_taken(host: str, port: int) -> str | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            line.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return None


def memory(
    here: Here,
    shm: Path = Path("/dev/shm"),
    meminfo: Path = Path("/proc/meminfo"),
    limit: Path = Path("/sys/fs/cgroup/memory.max"),
) -> Verdict:
    """The engine and its attention cache fit, and its processes can share memory."""
    if here.settings.engine == "echo":
        return fine("memory", "The echo engine needs no memory worth naming.")
    try:
        found = os.statvfs(shm)
        shm_mb = found.f_blocks * found.f_frsize / MB
    except OSError:
        shm_mb = 0.0
    if shm_mb < SHM_MB:
        cure = "Give the container more, for example with --shm-size=2g."
        return problem("memory", f"Shared memory ({shm}) is {shm_mb:.0f} MB.", cure)
    have_gib = min(_total_gib(meminfo), _limit_gib(limit))
    need_gib = ENGINE_GIB + here.settings.kv_cache_gib
    said = f"There are {have_gib:.1f} GiB of memory; the engine needs about {need_gib:.1f} GiB."
    if have_gib < need_gib:
        cure = "Set FAIRSCRIBE_KV_CACHE_GIB lower, take a smaller model, or add memory."
        return problem("memory", said, cure)
    return fine("memory", said)


def _total_gib(meminfo: Path) -> float:
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024 / GIB
    return float("inf")


def _limit_gib(limit: Path) -> float:
    """What the container may take; unlimited where nobody says."""
    try:
        text = limit.read_text().strip()
    except OSError:
        return float("inf")
    return int(text) / GIB if text.isdecimal() else float("inf")
