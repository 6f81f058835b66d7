"""Reads the settings, once: from variables of the environment, secrets also from files.

`FAIRSCRIBE_<NAME>` in capitals sets a field; `FAIRSCRIBE_<NAME>_FILE` names a file that holds a
secret or a URL with a password in it. A value that cannot be used, or a `FAIRSCRIBE_` name nobody
knows, is refused at start with the name, the value and what was expected: a typing mistake in a
setting must not turn into a default in silence.
"""

from __future__ import annotations

import difflib
import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from pipeline.errors import BadSetting
from pipeline.settings.fields import BY_FILE, SECRETS, Settings
from pipeline.settings.urls import without_password

PREFIX = "FAIRSCRIBE_"
FILE = "_FILE"

LONGEST_FILE = 65_536
"""Bytes of a file with a secret; who names a recording by mistake is told."""

NOT_SETTINGS = frozenset({"FAIRSCRIBE_READY_FILE", "FAIRSCRIBE_CRASH_AT"})
"""Set for each part by whoever starts it, the supervisor, a container or a test; not for people."""


@dataclass(frozen=True)
class SettingRow:
    """One line of `fairscribe settings`."""

    name: str
    value: str
    default: str
    meaning: str


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read all settings from the environment, and from the files it names.

    Raises `BadSetting` naming the variable, its value (no secret) and what was expected.
    """
    environ = os.environ if environ is None else environ
    _refuse_unknown(environ)
    given = {
        name: value
        for name in Settings.model_fields
        if (value := _given(name, environ)) is not None
    }
    try:
        return Settings.model_validate(given)
    except ValidationError as refused:
        first = refused.errors()[0]
        said = str(first["msg"]).removeprefix("Value error, ")
        if not first["loc"]:  # about several at once
            raise BadSetting(said + ".") from None
        name = str(first["loc"][0])
        value = "***" if name in SECRETS else repr(without_password(str(given.get(name))))
        raise BadSetting(f"{PREFIX}{name.upper()}={value}: {said}") from None


def _given(name: str, environ: Mapping[str, str]) -> str | None:
    """What somebody set; None for nothing, and for an empty text, as Compose writes it."""
    variable = PREFIX + name.upper()
    value, path = environ.get(variable), environ.get(variable + FILE)
    if name not in BY_FILE or not path:
        return value or None
    if value:
        raise BadSetting(f"{variable} and {variable + FILE} are both set: set one of them")
    try:
        read = _text_of(path)
    except (OSError, ValueError) as error:
        # a decoder would say what it found
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadSetting(f"{variable + FILE}={path!r}: {why}") from None
    value = read.removesuffix("\n").removesuffix("\r")
    if not value:
        raise BadSetting(f"{variable + FILE}={path!r}: it is empty")
    return value


def _text_of(path: str) -> str:
    """The text of a file. Raises `OSError` for a pipe or a device, which may never end."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        read = file.read(LONGEST_FILE + 1)
    if len(read) > LONGEST_FILE:
        raise OSError(errno.EFBIG, f"it is longer than {LONGEST_FILE} bytes")
    return read.decode("utf-8")


def _refuse_unknown(environ: Mapping[str, str]) -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields} | NOT_SETTINGS
    known |= {PREFIX + name.upper() + FILE for name in BY_FILE}
    for name in environ:
        if name.upper().startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name.upper(), known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise BadSetting(f"{name} is not a setting{hint}")


def setting_rows(settings: Settings) -> list[SettingRow]:
    """Every setting with its value, default and meaning, in the order they are declared."""
    rows = []
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        rows.append(
            SettingRow(
                PREFIX + name.upper(),
                str(getattr(settings, name)),
                "unset" if default is None else str(default),
                field.description or "",
            )
        )
    return rows
