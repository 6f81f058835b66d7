"""Flower as shipped, real and on a real broker: its password, and workers that went away."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from pipeline.errors import BadSetting
from pipeline.settings import read_settings
from tests.servers import wait_until
from workers.addresses import take_ports
from workers.alive import trouble_of_server
from workers.app import make_app
from workers.flower_server import PURGE_AFTER_S, flower_options
from workers.parts_table import draw_up
from workers.state_folder import StateFolder

PASSWORD = "open, secret:1"
"""Commas, colons and blanks are a password's good right."""


@contextmanager
def flower(environ: dict[str, str], **more: str) -> Iterator[tuple[str, psutil.Process]]:
    """Flower as a part: where it answers, and its process."""
    port = take_ports(port=("127.0.0.1", 0))["port"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("FAIRSCRIBE_")}
    env |= {**environ, "FAIRSCRIBE_FLOWER_PORT": str(port), **more}
    process = subprocess.Popen(
        [sys.executable, "-m", "workers.run", "flower"], env=env, stderr=subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: trouble_of_server(f"{url}/healthcheck") is None, 30, "Flower answers")
        yield url, psutil.Process(process.pid)
    finally:
        process.terminate()
        assert process.wait(10) == 0


def test_with_a_password_neither_page_nor_api_answers_without_it(environ: dict[str, str]) -> None:
    auth = {"FAIRSCRIBE_FLOWER_AUTH": f"me:{PASSWORD}", "FLOWER_UNAUTHENTICATED_API": "true"}
    pages = ("/", "/workers?json=1", "/tasks", "/broker", "/api/workers", "/api/tasks")
    with (
        flower(environ, **auth) as (url, process),
        httpx.Client(base_url=url, trust_env=False) as asked,
    ):
        right = httpx.BasicAuth("me", PASSWORD)
        # a part of the password up to its comma is not the password
        wrong = [None, *(httpx.BasicAuth("me", word) for word in ("open", "", "secret:1"))]
        for page in pages:
            codes = {asked.get(page, auth=given).status_code for given in wrong}
            assert codes == {401}, page
            assert asked.get(page, auth=right).status_code == 200, page
        assert asked.post("/api/worker/shutdown/nobody").status_code == 401
        assert asked.post("/api/task/revoke/nothing?terminate=true").status_code == 401
        assert PASSWORD not in " ".join(process.cmdline())


SHOWS = {"TasksDataTable", "NotFoundErrorHandler"}
"""Handlers of Flower that answer a POST and only show something."""


def orders() -> list[str]:
    """Every path of Flower by which something is done; one that an upgrade adds is among them."""
    from flower.urls import handlers
    from tornado.routing import URLSpec

    found = []
    for one in handlers:
        pattern, handler = (
            (one.regex.pattern, one.handler_class) if isinstance(one, URLSpec) else one[:2]
        )
        changes = {"post", "put", "patch", "delete"} & set(vars(handler))
        if changes and handler.__name__ not in SHOWS:
            assert changes == {"post"}, handler
            found.append(pattern.rstrip("$").replace("(.+)", "errands@here"))
    return found


def test_it_stops_and_cancels_nothing_unless_it_is_told_to(environ: dict[str, str]) -> None:
    paths = orders()
    assert len(paths) > 12
    # its own switch is not the way either
    with (
        flower(environ, FLOWER_READ_ONLY="false") as (url, _),
        httpx.Client(base_url=url, trust_env=False) as asked,
    ):
        for path in paths:
            for sent in ({}, {"params": {"terminate": "true"}}, {"json": {"args": []}}):
                answer = asked.post(path, **sent)
                assert answer.status_code == 403, (path, answer.text)
                assert "ead only" in answer.text + answer.reason_phrase, path
        for page in ("/", "/tasks", "/broker", "/api/workers", "/api/tasks", "/metrics"):
            assert asked.get(page).status_code == 200, page


def test_where_it_may_it_does(environ: dict[str, str]) -> None:
    with flower(environ, FAIRSCRIBE_FLOWER_CONTROL="true") as (url, _):
        answer = httpx.post(f"{url}/api/task/revoke/nothing?terminate=true", trust_env=False)
        assert answer.status_code == 200
        nobody = httpx.post(f"{url}/api/worker/shutdown/nobody", trust_env=False)
        assert nobody.status_code == 404


def test_without_a_password_this_machine_may_ask_its_api(environ: dict[str, str]) -> None:
    with flower(environ) as (url, _):
        answer = httpx.get(f"{url}/api/workers", trust_env=False)
        assert (answer.status_code, answer.json()) == (200, {})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "flower.example"])
def test_beyond_this_machine_it_is_refused_without_a_password(host: str, tmp_path: Path) -> None:
    open_to_all = {"FAIRSCRIBE_FLOWER_HOST": host, "FAIRSCRIBE_HOME": str(tmp_path)}
    with pytest.raises(BadSetting, match=f"FAIRSCRIBE_FLOWER_HOST={host}.*FAIRSCRIBE_FLOWER_AUTH"):
        flower_options(read_settings(open_to_all))
    # ... and `up` refuses before it starts anything
    with StateFolder(tmp_path) as folder, pytest.raises(BadSetting, match="FLOWER_AUTH"):
        draw_up(read_settings(open_to_all), folder)
    closed = {**open_to_all, "FAIRSCRIBE_FLOWER_AUTH": "me:secret"}
    assert flower_options(read_settings(closed))["basic_auth"] == ["me:secret"]


@pytest.mark.parametrize("auth", ["me", "me:", ":secret", "me:geheimnisträger", "me:se\ncret"])
def test_a_password_nobody_could_give_is_refused_and_not_repeated(auth: str) -> None:
    with pytest.raises(BadSetting, match=r"FAIRSCRIBE_FLOWER_AUTH=\*\*\*: ") as refused:
        read_settings({"FAIRSCRIBE_FLOWER_AUTH": auth})
    assert auth not in refused.value.message


def test_the_api_may_be_opened_without_opening_flower() -> None:
    given = read_settings({"FAIRSCRIBE_API_HOST": "0.0.0.0"})
    assert flower_options(given)["address"] == "127.0.0.1"


def test_it_remembers_what_the_settings_allow_and_writes_nothing_down() -> None:
    options = flower_options(read_settings({"FAIRSCRIBE_FLOWER_MAX_TASKS": "123"}))
    assert options["max_tasks"] == 123
    assert options["persistent"] is False
    assert options["purge_offline_workers"] == PURGE_AFTER_S == 600


def test_a_worker_that_went_away_is_listed_no_more(environ: dict[str, str]) -> None:
    # a worker as Flower sees it: its events. This one beats once and is never heard of again.
    app = make_app(read_settings(environ))
    with (
        flower(environ, FLOWER_PURGE_OFFLINE_WORKERS="2") as (url, _),
        app.connection_for_write() as line,
    ):

        def listed() -> list[str]:
            answer = httpx.get(f"{url}/workers?json=1", trust_env=False).json()
            return sorted(worker["hostname"] for worker in answer["data"])

        gone, here = (app.events.Dispatcher(line, hostname=f"{n}@box") for n in ("gone", "here"))

        def beat() -> None:
            here.send("worker-heartbeat", freq=1, active=0, processed=0)

        def both() -> bool:
            gone.send("worker-heartbeat", freq=1, active=1, processed=7)
            beat()
            return listed() == ["gone@box", "here@box"]

        wait_until(both, 10, "both are listed")
        begun_s = time.monotonic()
        wait_until(lambda: beat() or listed() == ["here@box"], 10, "one is left")
        assert time.monotonic() - begun_s > 1.5
