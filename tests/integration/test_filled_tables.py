"""Every version's tables, with rows in all of them, go down and up again and keep their rows."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any

import httpx
from sqlalchemy import Connection, text
from sqlalchemy.dialects.postgresql import JSONB

from pipeline.job import State
from pipeline.parts import Parts
from pipeline.store import schema, tables, views
from pipeline.store.session import transaction
from tests.api_door import api, assert_problem, open_api
from tests.integration.test_backup import half_heard, house_with_jobs
from tests.lines import eventually, pulling, states

__all__ = ["api", "open_api"]

VERSIONS = ("0005", "0004", "0003", "0002", "0001")

VALUES: dict[type[Any], Any] = {
    str: "x",
    int: 1,
    float: 1.0,
    bool: False,
    datetime: datetime(2026, 3, 2, tzinfo=UTC),
}


def fill(parts: Parts) -> None:
    """A row in each table that has none; of a parent's rows it takes the first."""
    with transaction(parts.store) as c:
        for table in tables.metadata.sorted_tables:
            if c.execute(text(f"SELECT EXISTS (SELECT FROM {table.name})")).scalar_one():
                continue
            row: dict[str, Any] = {}
            for column in table.columns:
                if column.identity or (column.nullable and not column.foreign_keys):
                    continue
                if column.foreign_keys:
                    (parent,) = column.foreign_keys
                    query = f"SELECT {parent.column.name} FROM {parent.column.table.name} LIMIT 1"
                    row[column.name] = c.execute(text(query)).scalar_one()
                elif isinstance(column.type, JSONB):
                    row[column.name] = {}
                elif column.type.python_type is uuid.UUID:
                    row[column.name] = uuid.uuid4()
                else:
                    row[column.name] = VALUES[column.type.python_type]
            if table.name in ("policies", "trials"):
                row |= {name: "sjf" for name in row if name.startswith("policy")}
                row |= {name: "fixed" for name in row if name.startswith("mode")}
            c.execute(table.insert().values(row))


def contents(c: Connection) -> dict[str, list[dict[str, Any]]]:
    """All rows of all tables that are there."""
    query = (
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        " AND table_name <> 'alembic_version'"
    )
    names = c.execute(text(query)).scalars().all()
    return {
        name: list(c.execute(text(f"SELECT to_jsonb(t) FROM {name} t")).scalars()) for name in names
    }


def without(rows: list[dict[str, Any]], columns: set[str]) -> set[str]:
    kept = [{k: v for k, v in row.items() if k in columns} for row in rows]
    return {json.dumps(row, sort_keys=True) for row in kept}


def test_filled_tables_go_down_through_every_version_and_up_again_with_their_rows(
    parts: Parts,
) -> None:
    # Given rows in every table
    house_with_jobs(parts)
    fill(parts)
    store = parts.store
    with transaction(store) as c:
        before = contents(c)
    assert all(before.values()), "a table is empty"
    assert set(before) == {table.name for table in tables.metadata.sorted_tables}
    try:
        for version in VERSIONS:
            # When they go down one version
            schema.downgrade(store, version)
            with transaction(store) as c:
                there = contents(c)
            # Then what this version knows has kept its rows and values
            for name, rows in there.items():
                assert rows, f"{name} lost its rows at {version}"
                same = set(rows[0]) & set(before[name][0])
                assert without(before[name], same) <= without(rows, same), (version, name)
        # And up again
        schema.upgrade(store)
        with transaction(store) as c:
            up = contents(c)
        for name in there:
            same = set(there[name][0]) & set(up[name][0])
            assert without(up[name], same) == without(there[name], same), name
    finally:
        schema.upgrade(store)


def test_a_job_goes_on_after_its_tables_went_down_one_version_and_up(parts: Parts) -> None:
    job_id = half_heard(parts)
    with transaction(parts.store) as c:
        c.execute(text("UPDATE jobs SET state = 'surveyed', index_pending = true"))
    schema.downgrade(parts.store, "0004")
    schema.upgrade(parts.store)
    with pulling(parts):
        eventually(lambda: states(parts) == {State.COMPLETED: 1})
    with transaction(parts.store) as c:
        body = views.transcript_body(c, job_id)
    assert json.dumps(body).count('"text": "Kept."') == 2


def test_what_a_newer_release_kept_beside_is_read_and_the_rest_of_the_job_heard(
    parts: Parts,
) -> None:
    # Given a job half heard by a newer release, whose plans and windows say more than ours
    job_id = half_heard(parts)
    with transaction(parts.store) as c:
        more = '{"said_since": {"by": "a newer release"}}'
        for statement in (
            "UPDATE plans SET plan = plan || CAST(:more AS jsonb)",
            "UPDATE plans SET plan = jsonb_set(plan, '{windows,0}', plan->'windows'->0"
            " || CAST(:more AS jsonb))",
            "UPDATE plans SET plan = jsonb_set(plan, '{windows,0,pieces,0}',"
            " plan->'windows'->0->'pieces'->0 || CAST(:more AS jsonb))",
            "UPDATE windows SET heard = heard || CAST(:more AS jsonb)",
            "UPDATE windows SET heard = jsonb_set(heard, '{utterances,0}',"
            " heard->'utterances'->0 || CAST(:more AS jsonb))",
        ):
            assert c.execute(text(statement), {"more": more}).rowcount
        c.execute(text("UPDATE jobs SET state = 'surveyed', index_pending = true"))
    # When an older worker takes it up, then it is completed with what was heard
    with pulling(parts):
        eventually(lambda: states(parts) == {State.COMPLETED: 1})
    with transaction(parts.store) as c:
        body = views.transcript_body(c, job_id)
    assert json.dumps(body).count('"text": "Kept."') == 2


def test_new_code_on_old_tables_says_migrate_first_and_old_code_on_new_ones_works(
    api: httpx.Client, parts: Parts
) -> None:
    assert api.get("/v1/health/ready").status_code == 200
    with transaction(parts.store) as c:
        c.execute(text("UPDATE alembic_version SET version_num = '0004'"))
    try:
        told = assert_problem(api.get("/v1/health/ready"), 503, "part_down")
        assert "workers.migrate" in api.get("/v1/health/ready").json()["detail"], told
        with transaction(parts.store) as c:
            c.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        assert api.get("/v1/health/ready").status_code == 200
    finally:
        with transaction(parts.store) as c:
            _, expected = schema.revisions(c)
            c.execute(text("UPDATE alembic_version SET version_num = :v"), {"v": expected})
