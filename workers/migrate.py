"""Brings the database of the settings to the schema this code expects: `python -m workers.migrate`.

A process of its own, so that the supervisor stays small and the log of a migration is one file.
"""

from __future__ import annotations

from pipeline.settings import read_settings, sqlalchemy_url
from pipeline.store.schema import upgrade
from pipeline.store.session import open_store


def main() -> None:
    """Apply every migration that is missing. Raises `SystemExit` when no database is named."""
    url = read_settings().database_url
    if url is None:
        raise SystemExit("FAIRSCRIBE_DATABASE_URL is not set")
    upgrade(open_store(sqlalchemy_url(url)))


if __name__ == "__main__":
    main()
