"""A part begun alone on the tables of an older version says so and ends; on newer ones it works."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import text

from pipeline.errors import BadSetting
from pipeline.parts import Parts
from pipeline.store.session import transaction
from workers.run import refuse_older_tables


@contextmanager
def tables_of(parts: Parts, version: str) -> Iterator[None]:
    def say(what: str) -> str:
        with transaction(parts.store) as c:
            before = str(c.execute(text("SELECT version_num FROM alembic_version")).scalar_one())
            c.execute(text("UPDATE alembic_version SET version_num = :v"), {"v": what})
        return before

    before = say(version)
    try:
        yield
    finally:
        say(before)


@pytest.mark.parametrize("part", ["api", "errands", "survey", "transcribe"])
def test_a_part_on_older_tables_says_migrate_first_and_ends(
    parts: Parts, environ: dict[str, str], part: str
) -> None:
    argv = [sys.executable, "-m", "workers.run", part]
    env = {**os.environ, **environ}
    with tables_of(parts, "0004"):
        told = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert told.returncode == 2
    (sentence,) = told.stderr.splitlines()
    assert "the tables of version 0004" in sentence
    assert "`python -m workers.migrate` first" in sentence


def test_tables_of_these_and_of_a_newer_version_are_well(parts: Parts) -> None:
    refuse_older_tables(parts.settings)
    with tables_of(parts, "9999"):
        refuse_older_tables(parts.settings)
    with tables_of(parts, "0001"), pytest.raises(BadSetting, match="version 0001"):
        refuse_older_tables(parts.settings)


def test_a_postgres_that_is_not_there_is_left_to_the_part(parts: Parts) -> None:
    nobody = "postgresql://nobody@127.0.0.1:1/none"
    refuse_older_tables(parts.settings.model_copy(update={"database_url": nobody}))
