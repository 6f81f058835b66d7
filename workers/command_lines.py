"""How each part is started: one table for `fairscribe up`, `compose.yaml` and a unit file of yours.

In: a part's name and the settings. Out: its command line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from pipeline.settings import Settings

_WORKERS = {
    "errands": "-A workers.errands worker -P threads -c 8 -Q errands",
    "survey": "-A workers.survey worker -P solo -Q survey.idle",
    "transcribe": "-A workers.transcribe worker -P solo -Q transcribe.idle",
}


def _api(settings: Settings) -> str:
    # Open streams of events would keep the API from ending for ever.
    return (
        "uvicorn pipeline.api.app:create --factory --timeout-graceful-shutdown 5 "
        "--no-server-header "
        f"--host {settings.api_host} --port {settings.api_port}"
    )


def _worker(name: str) -> Callable[[Settings], str]:
    words = f"celery {_WORKERS[name]} -n {name}@%h --without-gossip --without-mingle -l INFO"
    return lambda _settings: words


_MODULES: dict[str, Callable[[Settings], str]] = {
    "migrations": lambda _settings: "workers.migrate",
    "api": _api,
    **{name: _worker(name) for name in _WORKERS},
    "flower": lambda _settings: "workers.flower_server",
}

PARTS = tuple(_MODULES)
"""Every part that is a process of ours, in the order of their start."""


def command_line(part: str, settings: Settings) -> list[str]:
    """The command line of `part`, one of `PARTS`.

    It holds no secret: what stands on a command line can be read by everybody on the machine.
    """
    return [sys.executable, "-m", *_MODULES[part](settings).split()]
