"""What Postgres refuses is told of without the values it refused: words, file names, metadata."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import structlog
from celery import Celery
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from pipeline.logs import configure, log
from pipeline.parts import Parts
from pipeline.steps.accept import Upload, accept
from pipeline.store.session import transaction
from tests.lines import eventually, received_job
from tests.sounds import joined, silence, voice, wav
from workers.command_lines import command_line

MARKER = "Maria Musterfrau"
CALL = wav(joined([voice(1, rate=8_000), silence(1, 8_000)]), 8_000)

REFUSALS = {
    "check": ("UPDATE jobs SET state = 'nowhere'", "jobs_state_known"),
    "unique": ("INSERT INTO jobs SELECT * FROM jobs", "jobs_pkey"),
    "null": ("UPDATE jobs SET state = NULL", "state"),
    "number": (f"SELECT CAST('{MARKER}' || file_name AS integer) FROM jobs", "22P02"),
    "date": (f"SELECT CAST('{MARKER}' || file_name AS timestamptz) FROM jobs", "22007"),
    "json": (f"SELECT CAST('{{{MARKER}' || file_name AS jsonb) FROM jobs", "22P02"),
}


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def refused(store: Engine, statement: str) -> DBAPIError:
    with pytest.raises(DBAPIError) as caught, transaction(store) as c:
        c.execute(text(statement))
    return caught.value


@pytest.mark.parametrize("kind", REFUSALS)
def test_an_error_of_the_driver_names_the_rule_and_no_value_in_all_of_its_chain(
    parts: Parts, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    statement, rule = REFUSALS[kind]
    received_job(parts, file_name=MARKER)
    configure("test")
    caught = refused(parts.store, statement.replace(MARKER, MARKER if "CAST" in statement else ""))
    try:
        try:
            raise caught
        except DBAPIError as error:
            raise RuntimeError("the last of a chain") from error
    except RuntimeError as last:
        log().exception("unit_error", job_id="1")
        log().error("postman_failed", exc_info=last)
        shown = "".join(traceback.format_exception(last)) + capsys.readouterr().err
    shown = shown.replace(statement, "")  # its own words, which none of ours has a value in
    assert isinstance(caught.orig, psycopg.Error)
    assert MARKER not in repr(caught.orig)
    assert MARKER not in shown.replace(str(caught.statement), "")
    assert shown.count(rule) >= 3


def test_a_row_that_is_not_restored_is_not_shown(parts: Parts) -> None:
    def restore() -> None:
        with transaction(parts.store) as c:
            raw: Any = c.connection.driver_connection
            into = "COPY jobs (id, file_name) FROM STDIN"
            with raw.cursor() as cursor, cursor.copy(into) as copy:
                copy.write(f"{MARKER}\t{MARKER}\n".encode())

    with pytest.raises(psycopg.Error) as caught:
        restore()
    shown = "".join(traceback.format_exception(caught.value))
    assert "22P02" in shown
    assert MARKER not in shown


@pytest.fixture
def refusing(parts: Parts) -> Iterator[Parts]:
    """No job may become probed, and none may have a certain agent."""
    with transaction(parts.store) as c:
        rule = "state <> 'probed' AND NOT (metadata ? 'refused')"
        c.execute(text(f"ALTER TABLE jobs ADD CONSTRAINT for_a_test CHECK ({rule})"))
    yield parts
    with transaction(parts.store) as c:
        c.execute(text("ALTER TABLE jobs DROP CONSTRAINT for_a_test"))


@contextmanager
def running(part: str, parts: Parts, environ: dict[str, str], written: Path) -> Iterator[None]:
    with written.open("wb") as file:
        process = subprocess.Popen(
            command_line(part, parts.settings),
            env={**os.environ, **environ},
            stdout=file,
            stderr=file,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


def test_the_log_of_a_worker_shows_no_row_that_was_refused(
    refusing: Parts, environ: dict[str, str], tmp_path: Path
) -> None:
    sound = Upload(f"{MARKER}.wav", [CALL], metadata={"who": MARKER})
    job_id = accept(refusing.store, refusing.storage, sound, 10**6).job_id
    written = tmp_path / "log"
    refusing.handover.probe([job_id])
    with running("errands", refusing, environ, written):
        eventually(lambda: "for_a_test" in written.read_text(), 60)
    said = written.read_text()
    assert "Traceback" in said
    assert MARKER not in said


def test_the_log_of_the_api_shows_no_row_that_was_refused(
    refusing: Parts, environ: dict[str, str], tmp_path: Path
) -> None:
    def upload() -> httpx.Response | None:
        with suppress(httpx.ConnectError):
            files = {"files": (f"{MARKER}.wav", CALL)}
            said = {"metadata": f'{{"refused": "{MARKER}"}}'}
            return httpx.post(f"http://127.0.0.1:{port}/v1/jobs", files=files, data=said)
        return None

    written = tmp_path / "log"
    with socket.socket() as any_free:
        any_free.bind(("127.0.0.1", 0))
        port = any_free.getsockname()[1]
    settings = refusing.settings.model_copy(update={"api_port": port})
    object.__setattr__(refusing, "settings", settings)
    with running("api", refusing, environ, written):
        answer = eventually(upload, 60)
        eventually(lambda: "for_a_test" in written.read_text(), 10)
    said = written.read_text()
    assert answer.status_code == 500
    assert "Traceback" in said
    assert MARKER not in said + answer.text


@contextmanager
def written_by(*names: str) -> Iterator[StringIO]:
    """What these loggers write, whatever servers of other tests in this process made of them."""
    text = StringIO()
    handler = logging.StreamHandler(text)
    before = {}
    for logger in map(logging.getLogger, names):
        before[logger] = logger.level, logger.disabled
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.disabled = False
    try:
        yield text
    finally:
        for logger, (level, disabled) in before.items():
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.disabled = disabled


def test_celery_and_uvicorn_write_what_the_error_says_and_that_holds_no_value(
    parts: Parts,
) -> None:
    received_job(parts, file_name=MARKER)
    app = Celery("test", broker="memory://")

    @app.task(name="refused")
    def run() -> None:
        with transaction(parts.store) as c:
            c.execute(text("UPDATE jobs SET state = 'nowhere'"))

    with written_by("celery.app.trace", "uvicorn.error") as written:
        try:
            run.apply(throw=True)
        except DBAPIError:
            logging.getLogger("uvicorn.error").exception("Exception in ASGI application")
    assert written.getvalue().count("jobs_state_known") >= 2
    assert MARKER not in written.getvalue()
