"""A backup holds all there is; restored elsewhere, work goes on and the erased stay erased."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from pipeline.errors import BadRequest
from pipeline.intake.prober import Prober
from pipeline.intake.storage import Storage
from pipeline.job import SURVEY, TRANSCRIBE, State
from pipeline.parts import Parts, open_parts
from pipeline.settings import read_settings
from pipeline.steps.accept import Upload, accept
from pipeline.steps.backup import Copied, add_tombstones, backup, restore
from pipeline.steps.erase import erase, erase_again
from pipeline.steps.probe import probe
from pipeline.store import jobs, schema, views
from pipeline.store.retention import Keep
from pipeline.store.session import transaction
from tests import driven, sounds
from tests.integration.test_erase import left
from tests.lines import eventually, pulling, save_window, states, surveyed_job
from tests.servers import start_servers
from workers.echo_engine import EchoEngine
from workers.survey import SurveyWork
from workers.transcribe import TranscribeWork


@pytest.fixture
def elsewhere(tmp_path: Path, environ: dict[str, str]) -> Iterator[Parts]:
    """Another installation, with servers of its own, on which nothing ever was."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    database_url, redis_url, stop = start_servers(place)
    urls = {"FAIRSCRIBE_DATABASE_URL": database_url, "FAIRSCRIBE_REDIS_URL": redis_url}
    opened = open_parts(read_settings({**environ, **urls, "FAIRSCRIBE_HOME": str(place / "home")}))
    yield opened
    opened.store.dispose()
    stop()


def rows(parts: Parts, table: str) -> list[dict[str, Any]]:
    with transaction(parts.store) as c:
        found = c.execute(text(f"SELECT to_jsonb(t) AS row FROM {table} t")).scalars()
        return sorted(found, key=str)


def transcript(parts: Parts, job_id: str) -> str:
    with transaction(parts.store) as c:
        return json.dumps(views.transcript_body(c, job_id), sort_keys=True)


def half_heard(parts: Parts) -> str:
    """A job in work: of its four windows a worker has heard two."""
    job_id = surveyed_job(parts, windows=4)
    model = TranscribeWork(parts, EchoEngine()).model
    with transaction(parts.store) as c:
        (ticket,) = jobs.grant(c, TRANSCRIBE, [job_id], "lost@there", model)
        for index in (0, 2):
            heard = {
                "utterances": [{"start_s": 0.0, "end_s": 1.0, "text": "Kept."}],
                "language": "en",
                "tokens": 5,
                "mean_logprob": -0.1,
                "finish": "stop",
                "busy_s": 0.1,
            }
            save_window(c, ticket, index, heard)
    return job_id


def house_with_jobs(parts: Parts) -> dict[str, list[str]]:
    """Thirty jobs, by how they stand."""
    made: dict[str, list[str]] = {
        "received": [
            accept(parts.store, parts.storage, Upload("v.wav", [voice()]), 10**7).job_id
            for _ in range(4)
        ],
        "surveyed": [surveyed_job(parts, windows=2) for _ in range(6)],
        "running": [half_heard(parts) for _ in range(4)],
        "completed": [driven.received(parts, batch_id="monday") for _ in range(10)],
        "failed": [driven.received(parts) for _ in range(4)],
        "cancelled": [driven.received(parts) for _ in range(2)],
    }
    for job_id in made["completed"]:
        driven.completed(parts, job_id)
    for job_id in made["failed"]:
        driven.failed(parts, job_id)
    with transaction(parts.store) as c:
        for job_id in made["cancelled"]:
            jobs.cancel(c, job_id)
        c.execute(text("INSERT INTO tenants (name) VALUES ('ours')"))
        c.execute(
            text("INSERT INTO policies (policy, reason) VALUES ('sjf', E'tab\\t, line\\n, \\\\N')")
        )
    return made


def voice() -> bytes:
    return sounds.wav(sounds.voice(3.0))


def test_restored_elsewhere_all_is_there_work_goes_on_and_the_erased_stay_erased(
    parts: Parts, elsewhere: Parts, tmp_path: Path, prober: Prober
) -> None:
    # Given thirty jobs in every state, and their backup
    made = house_with_jobs(parts)
    ids = {job_id for group in made.values() for job_id in group}
    folder = tmp_path / "backup"
    done = backup(parts.store, parts.storage, folder)
    assert (done.jobs, done.tombstones) == (30, 0)
    words = {job_id: transcript(parts, job_id) for job_id in made["completed"]}
    before = {name: rows(parts, name) for name in ("policies", "tenants", "windows", "transcripts")}
    # When more come, two old ones are erased, and the installation is lost
    driven.received(parts)
    erased = {made["completed"][0], made["surveyed"][0]}
    for job_id in erased:
        erase(parts.store, parts.storage, parts.queues, job_id)
    assert add_tombstones(parts.storage, folder) == 2
    # And the backup is restored where nothing is
    told = restore(elsewhere.store, elsewhere.storage, folder)
    assert told == Copied(30, done.files, done.bytes, tombstones=2)
    for name, kept in before.items():
        assert rows(elsewhere, name) == kept
    assert erase_again(elsewhere.store, elsewhere.storage, elsewhere.queues, Keep()) == 2
    # Then what was there is there, to the byte, and the erased are gone again
    assert left(elsewhere) == ids - erased
    for job_id in set(words) - erased:
        assert transcript(elsewhere, job_id) == words[job_id]
        key = f"recordings/{job_id}"
        assert elsewhere.storage.read_range(key, 0, 4) == b"RIFF"
    assert not any(job_id in key for job_id in erased for key in files(elsewhere))
    # And what was in work is completed, without hearing again what was heard
    for job_id in made["received"]:
        probe(
            elsewhere.store, elsewhere.storage, prober, elsewhere.queues[SURVEY.name], job_id, "en"
        )
    with pulling(elsewhere, work=SurveyWork(elsewhere), name="s@here"), pulling(elsewhere):
        in_work = {*made["received"], *made["surveyed"], *made["running"]} - erased
        eventually(
            lambda: states(elsewhere).get(State.COMPLETED, 0) == 9 + len(in_work),
            60,
            f"completed: {states(elsewhere)}",
        )
    for job_id in made["running"]:
        assert transcript(elsewhere, job_id).count('"text": "Kept."') == 2
    # And new rows get numbers nobody had
    with transaction(elsewhere.store) as c:
        c.execute(text("INSERT INTO policies (policy, reason) VALUES ('fcfs', 'later')"))


def files(parts: Parts) -> list[str]:
    return [key for folder in ("recordings", "packed") for key, _ in parts.storage.keys(folder)]


def test_tombstones_of_a_storage_that_outlived_its_installation_count(
    parts: Parts, elsewhere: Parts, tmp_path: Path
) -> None:
    job_id = driven.received(parts)
    backup(parts.store, parts.storage, tmp_path / "backup")
    erase(parts.store, parts.storage, parts.queues, job_id)
    outlived = Storage(parts.settings.home / "storage")
    restore(elsewhere.store, elsewhere.storage, tmp_path / "backup", outlived)
    assert left(elsewhere) == {job_id}
    erase_again(elsewhere.store, elsewhere.storage, elsewhere.queues, Keep())
    assert left(elsewhere) == set()


def test_a_job_whose_packed_speech_was_erased_during_the_backup_is_surveyed_again(
    parts: Parts, elsewhere: Parts, tmp_path: Path, prober: Prober
) -> None:
    # Given a job that was surveyed when Postgres was read, and completed before storage was
    job_id = accept(parts.store, parts.storage, Upload("v.wav", [voice()]), 10**7).job_id
    probe(parts.store, parts.storage, prober, parts.queues[SURVEY.name], job_id, "en")
    with pulling(parts, work=SurveyWork(parts)):
        eventually(lambda: states(parts) == {State.SURVEYED: 1})
    folder = tmp_path / "backup"
    backup(parts.store, parts.storage, folder)
    (packed,) = (folder / "storage" / "packed").iterdir()
    packed.unlink()
    # When it is restored, then it begins at its probe, and is not lost
    assert restore(elsewhere.store, elsewhere.storage, folder).begun_again == 1
    assert states(elsewhere) == {State.RECEIVED: 1}
    there = elsewhere
    probe(there.store, there.storage, prober, there.queues[SURVEY.name], job_id, "en")
    with pulling(there, work=SurveyWork(there), name="s@here"), pulling(there):
        eventually(lambda: states(there) == {State.COMPLETED: 1})


def test_a_restore_refuses_what_would_lose_something(
    parts: Parts, elsewhere: Parts, tmp_path: Path
) -> None:
    folder = tmp_path / "backup"
    job_id = driven.received(parts)
    backup(parts.store, parts.storage, folder)
    with pytest.raises(BadRequest, match="is not empty"):
        backup(parts.store, parts.storage, folder)
    with pytest.raises(BadRequest, match="There are jobs here"):
        restore(parts.store, parts.storage, folder)
    assert left(parts) == {job_id}
    with pytest.raises(BadRequest, match="is no backup"):
        restore(elsewhere.store, elsewhere.storage, tmp_path)
    index = folder / "backup.json"
    told = json.loads(index.read_text())
    index.write_text(json.dumps({**told, "revision": "9999"}))
    with pytest.raises(BadRequest, match="newer version"):
        restore(elsewhere.store, elsewhere.storage, folder)
    index.write_text(json.dumps(told))
    table = folder / "tables" / "jobs.copy"
    table.write_bytes(table.read_bytes().replace(b"call.wav", b"fall.wav"))
    with pytest.raises(BadRequest, match=r"jobs.copy is not as it was written"):
        restore(elsewhere.store, elsewhere.storage, folder)


def test_a_restore_that_is_refused_leaves_no_tombstone_behind(
    parts: Parts, elsewhere: Parts, tmp_path: Path
) -> None:
    # Given a backup of a copy of this house, in which a job was erased that is still here
    folder = tmp_path / "backup"
    job_id = driven.received(parts)
    backup(parts.store, parts.storage, folder)
    restore(elsewhere.store, elsewhere.storage, folder)
    erase(elsewhere.store, elsewhere.storage, elsewhere.queues, job_id)
    add_tombstones(elsewhere.storage, folder)
    # When somebody restores it here by mistake, then nothing of it comes in
    with pytest.raises(BadRequest, match="There are jobs here"):
        restore(parts.store, parts.storage, folder)
    erase_again(parts.store, parts.storage, parts.queues, Keep())
    assert left(parts) == {job_id}


def test_a_backup_that_was_tampered_with_is_refused_and_reads_no_file_beside_it(
    parts: Parts, elsewhere: Parts, tmp_path: Path
) -> None:
    folder = tmp_path / "backup"
    backup(parts.store, parts.storage, folder)
    index = folder / "backup.json"
    told = json.loads(index.read_text())
    outside = {"columns": [], "rows": 0, "sha256": ""}
    (tmp_path / "outside.copy").write_text("x")
    index.write_text(json.dumps({**told, "tables": {**told["tables"], "../../outside": outside}}))
    with pytest.raises(BadRequest, match="is no table"):
        restore(elsewhere.store, elsewhere.storage, folder)
    del told["tables"]["transcripts"]
    index.write_text(json.dumps(told))
    with pytest.raises(BadRequest, match="Some tables are missing"):
        restore(elsewhere.store, elsewhere.storage, folder)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("s3cret")
    (folder / "storage" / "recordings").mkdir(exist_ok=True)
    (folder / "storage" / "recordings" / "linked").symlink_to(tmp_path / "secrets")
    with pytest.raises(BadRequest, match="Some tables are missing"):
        restore(elsewhere.store, elsewhere.storage, folder)
    assert elsewhere.storage.keys("recordings") == []


def test_a_backup_of_an_older_version_comes_up_to_this_one(
    parts: Parts, elsewhere: Parts, tmp_path: Path
) -> None:
    # Given a backup as code of 0004 would have made it
    job_id = driven.received(parts)
    driven.completed(parts, job_id)
    folder = tmp_path / "backup"
    backup(parts.store, parts.storage, folder)
    schema.downgrade(parts.store, "0004")
    try:
        told = json.loads((folder / "backup.json").read_text())
        with transaction(parts.store) as c:
            query = (
                "SELECT table_name, array_agg(column_name::text ORDER BY ordinal_position) AS"
                " columns FROM information_schema.columns WHERE table_schema = 'public'"
                " AND table_name <> 'alembic_version' GROUP BY 1"
            )
            there = {row[0]: row[1] for row in c.execute(text(query))}
            as_then = as_written_then(c, folder / "tables", told["tables"], there)
    finally:
        schema.upgrade(parts.store)
    index = {**told, "revision": "0004", "tables": as_then}
    (folder / "backup.json").write_text(json.dumps(index))
    # When it is restored here, then its jobs have what this version added
    schema.upgrade(elsewhere.store)
    restore(elsewhere.store, elsewhere.storage, folder)
    with transaction(elsewhere.store) as c:
        kept = views.view(c, job_id)
        assert schema.revisions(c)[0] == schema.revisions(c)[1]
    assert kept is not None
    assert kept.audio_erased_at is None
    assert transcript(elsewhere, job_id) == transcript(parts, job_id)


def as_written_then(c: Any, folder: Path, told: dict[str, Any], there: dict[str, Any]) -> Any:
    """The files of the tables and columns that are `there`, written anew."""
    from psycopg.sql import SQL, Identifier

    from pipeline.store import dump

    then = {}
    for name in told:
        (folder / f"{name}.copy").unlink()
        if name in there:
            columns = there[name]
            copy = SQL("COPY {} ({}) TO STDOUT").format(Identifier(name), dump._names(columns))
            file = dump._write(c, copy, folder / f"{name}.copy", columns)
            then[name] = {"columns": file.columns, "rows": file.rows, "sha256": file.sha256}
    return then


def test_tables_of_another_version_are_not_backed_up_by_this_one(
    elsewhere: Parts, tmp_path: Path
) -> None:
    schema.upgrade(elsewhere.store, "0004")
    with pytest.raises(BadRequest, match=r"expected .*: run `python -m workers.migrate` first"):
        backup(elsewhere.store, elsewhere.storage, tmp_path / "backup")
