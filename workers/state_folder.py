"""The state folder: everything `fairscribe up` keeps on this machine, used by one at a time.

    HOME/           0711 for root, so that the servers' user can pass through; else 0700
      lock          flock held while in use; names the holder's pid
      run/          ours, 0700: the ready files of the parts
      logs/         ours, 0700: one log a part
      sockets/      the servers', 0700: Unix sockets, the only way in
      postgres/     the servers', 0700
      valkey/       the servers', 0700

Postgres refuses to run as root. So under root both servers run as an existing account without
rights (`postgres`, else `nobody`): none is created, and no folder that is not ours is opened up.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pwd
import shutil
import stat
import tempfile
from functools import cached_property
from pathlib import Path
from types import TracebackType

from pipeline.errors import BadSetting
from workers.child import User

SOCKET_PATH_BYTES = 100
"""Longest socket path we use; the kernel stops at 107."""

LONGEST_SOCKET_NAME = ".s.PGSQL.5432.lock"

OWN_SERVERS = "or give FAIRSCRIBE_DATABASE_URL and FAIRSCRIBE_REDIS_URL"


class StateFolderInUse(BadSetting):
    """The state folder is in use by another process."""

    code = "state_folder_in_use"

    def __init__(self, home: Path, holder_pid: int | None) -> None:
        self.holder_pid = holder_pid
        who = f"process {holder_pid}" if holder_pid else "another process"
        super().__init__(
            f"FAIRSCRIBE_HOME={home} is in use by {who}: stop that one, or choose another folder"
        )


class StateFolder:
    """The state folder, made if needed and locked until `close()`.

    Raises `StateFolderInUse` when another process holds it, `BadSetting` when it cannot be written.
    """

    def __init__(self, home: Path) -> None:
        self.home = home.expanduser().resolve()
        self.run = self.home / "run"
        self.logs = self.home / "logs"
        try:
            ours = _is_ours(self.home)
            _make_with_parents(self.home)
            self._lock = self._take_lock()
            if ours:
                self.home.chmod(0o711 if os.geteuid() == 0 else 0o700)
            for folder in (self.run, self.logs):
                folder.mkdir(exist_ok=True)
                folder.chmod(0o700)
        except OSError as error:
            raise BadSetting(
                f"FAIRSCRIBE_HOME={home}: expected a folder we can write ({error.strerror})"
            ) from error

    def __enter__(self) -> StateFolder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the next one in, and remove what lies outside HOME."""
        sockets = self.__dict__.get("sockets")
        if sockets is not None and sockets.parent != self.home:
            shutil.rmtree(sockets, ignore_errors=True)
        os.close(self._lock)

    def _take_lock(self) -> int:
        # The file stays when we go: removing a lock file lets two processes hold "the" lock.
        lock = os.open(self.home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 32).decode(errors="replace").strip()
            os.close(lock)
            raise StateFolderInUse(self.home, int(holder) if holder.isdigit() else None) from None
        os.ftruncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
        return lock

    @cached_property
    def server_user(self) -> User | None:
        """Who the servers run as; None: as we do. Raises `BadSetting` when nobody suitable is."""
        if os.geteuid() != 0:
            with contextlib.suppress(KeyError):
                pwd.getpwuid(os.geteuid())
                return None
            # initdb: "could not look up effective user ID"; usual where a cluster gives out numbers
            raise BadSetting(
                f"user id {os.geteuid()} has no entry in /etc/passwd, which PostgreSQL needs to "
                f"start: add one, {OWN_SERVERS}"
            )
        for name in ("postgres", "nobody"):
            with contextlib.suppress(KeyError):
                entry = pwd.getpwnam(name)
                return User(name, entry.pw_uid, entry.pw_gid)
        raise BadSetting(
            f"PostgreSQL refuses to run as root and there is no user 'postgres' or 'nobody': run "
            f"as a normal user, {OWN_SERVERS}"
        )

    def server_folder(self, name: str) -> Path:
        """HOME/`name`, made if needed, 0700 and the servers' own.

        Raises `BadSetting` when the servers' user cannot get there or somebody else owns it.
        """
        self._check_reachable(self.home)
        return self._give(self.home / name)

    @cached_property
    def sockets(self) -> Path:
        """Where the servers' sockets lie: in HOME, or in a short private folder if that is long."""
        here = self.home / "sockets"
        if _fits(here):
            return self.server_folder("sockets")
        # One name for one HOME, so that what a kill -9 left behind is used again, not added to.
        mark = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]
        short = Path(tempfile.gettempdir()).resolve() / f"fairscribe-{mark}"
        if not _fits(short):
            raise BadSetting(f"FAIRSCRIBE_HOME and {short} are both too long for Unix sockets")
        self._check_reachable(short.parent)
        return self._give(short)

    def _give(self, folder: Path) -> Path:
        owner = self.server_user or User("", os.geteuid(), os.getegid())
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            self._chown(folder, owner)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner.uid:
            raise BadSetting(
                f"{folder} belongs to user id {found.st_uid}, expected {owner.uid}: run as the "
                "user that made it, or change the owner of everything in it"
            )
        folder.chmod(0o700)
        return folder

    @staticmethod
    def _chown(folder: Path, owner: User) -> None:
        try:
            os.chown(folder, owner.uid, owner.gid)
        except PermissionError as error:  # root without CAP_CHOWN, as in a container stripped bare
            folder.rmdir()
            raise BadSetting(
                f"this root may not give {folder} to '{owner.name}': run as a normal user, "
                f"{OWN_SERVERS}"
            ) from error

    def _check_reachable(self, folder: Path) -> None:
        user = self.server_user
        blocked = _blocked_at(folder, user) if user else None
        if user and blocked:
            mode = stat.S_IMODE(blocked.stat().st_mode)
            raise BadSetting(
                f"FAIRSCRIBE_HOME={self.home}: the servers run as '{user.name}', who may not enter "
                f"{blocked} (mode {mode:04o}): choose a folder outside it, {OWN_SERVERS}"
            )


def _is_ours(home: Path) -> bool:
    """Whether the mode of HOME is ours to set: never that of a folder somebody filled otherwise."""
    return not home.exists() or (home / "lock").exists() or not any(home.iterdir())


def _make_with_parents(home: Path) -> None:
    """Like `mkdir -p`, with the folders on the way open to pass whatever the umask."""
    for folder in reversed([p for p in (home, *home.parents) if not p.exists()]):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o711)


def _blocked_at(folder: Path, user: User) -> Path | None:
    """The first folder on the way to `folder` that `user` may not pass, None when all are open."""
    for step in (*reversed(folder.parents), folder):
        found = step.stat()
        bit = (
            stat.S_IXUSR
            if found.st_uid == user.uid
            else stat.S_IXGRP
            if found.st_gid == user.gid
            else stat.S_IXOTH
        )
        if not found.st_mode & bit:
            return step
    return None


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder / LONGEST_SOCKET_NAME)) <= SOCKET_PATH_BYTES
