"""Becomes one part: `python -m workers.run api`. What a container or a unit file starts.

In: a name of `workers.command_lines.PARTS`; the settings. A setting that cannot be used, or tables
of an older version, end it with one sentence and exit code 2; else this process is replaced by the
part, its pid and signals included. Tables of a newer version are well, for releases that run side
by side; and a Postgres that does not answer is waited for by the part itself.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from pipeline.errors import BadSetting, PartDown
from pipeline.settings import Settings, read_settings, sqlalchemy_url
from pipeline.store.schema import check_migrated
from pipeline.store.session import open_store, transaction
from workers.command_lines import PARTS, command_line

WITHOUT_TABLES = ("migrations", "flower")


def main(argv: Sequence[str] | None = None) -> int:
    """Replace this process; returns only when that was refused."""
    parser = argparse.ArgumentParser(prog="workers.run", description="Become one part.")
    parser.add_argument("part", choices=PARTS)
    part = parser.parse_args(argv).part
    try:
        settings = read_settings()
        words = command_line(part, settings)
        if part not in WITHOUT_TABLES:
            refuse_older_tables(settings)
    except BadSetting as refused:
        print(refused.message, file=sys.stderr)
        return 2
    os.umask(0o077)  # recordings are nobody else's business
    os.execv(words[0], words)


def refuse_older_tables(settings: Settings) -> None:
    """Raise `BadSetting` when the tables are of a version before this code's: every job would fail
    by itself.
    """
    if settings.database_url is None:
        return  # the part says so
    store = open_store(sqlalchemy_url(settings.database_url))
    try:
        with transaction(store) as c:
            try:
                check_migrated(c)
            except PartDown as older:
                raise BadSetting(older.message) from older
    except PartDown:
        return
    finally:
        store.dispose()


if __name__ == "__main__":
    sys.exit(main())
