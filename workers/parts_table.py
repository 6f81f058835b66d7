"""The parts of `fairscribe up`: command line, environment, readiness, order of ending. One table.

    stage 1  postgres, valkey      ours, unless the settings name others
    stage 2  migrations            run once
    stage 3  api, errands, survey, transcribe, flower

They are ended in another order: the door first, so that nothing new comes in; then the workers,
who give back or finish what they hold; then who watches; the stores last.
"""

from __future__ import annotations

import json
import math
import signal
from dataclasses import dataclass
from pathlib import Path

from pipeline.settings import Settings, address
from workers.addresses import answers_health, answers_port, take_ports
from workers.command_lines import command_line
from workers.flower_server import flower_options
from workers.part import Part, command
from workers.postgres import FAST, FAST_WITHIN_S, Postgres
from workers.state_folder import StateFolder
from workers.valkey import STOP_WITHIN_S, Valkey

DOOR, WORKERS, WATCHERS, QUEUE, DATABASE = range(5)
"""Ranks of ending."""

AFTER_DRAIN_S = 20.0
"""What a worker gets beyond its drain time before it is killed."""


@dataclass(frozen=True)
class Table:
    """All parts for one `up`, and where they are found."""

    settings: Settings
    folder: StateFolder
    stages: tuple[tuple[Part, ...], ...]
    database_url: str
    redis_url: str
    api: str
    flower: str

    def as_json(self, pids: dict[str, int]) -> str:
        """One line: the addresses, and {name: pid}."""
        return json.dumps(
            {
                "home": str(self.folder.home),
                "api": self.api,
                "flower": self.flower,
                "database_url": self.database_url,
                "redis_url": self.redis_url,
                "pids": pids,
                "engine": self.settings.engine,
                "model": self.settings.model,
            }
        )

    def as_text(self) -> str:
        """The addresses for a person."""
        return f"\n  API     {self.api}\n  Flower  {self.flower}\n  Ctrl-C stops everything\n"

    @property
    def _addresses(self) -> Path:
        return self.folder.run / "up.json"

    def write_addresses(self, pids: dict[str, int]) -> None:
        """Leave `as_json` in HOME/run/up.json, where the command line finds us on free ports."""
        fresh = self._addresses.with_suffix(".new")
        fresh.write_text(self.as_json(pids) + "\n")
        fresh.replace(self._addresses)

    def forget_addresses(self) -> None:
        """Remove HOME/run/up.json and what the parts said of being ready."""
        for left in (self._addresses, *self.folder.run.glob("*.ready")):
            left.unlink(missing_ok=True)


def draw_up(settings: Settings, folder: StateFolder) -> Table:
    """The table for these settings. Raises `BadSetting`, for example for a port in use."""
    flower_options(settings)  # refused here, before anything is started
    stores, database_url, redis_url = _stores(settings, folder)
    ports = take_ports(
        api_port=(settings.api_host, settings.api_port),
        flower_port=(settings.flower_host, settings.flower_port),
    )
    settings = settings.model_copy(update=ports)
    env = {
        "FAIRSCRIBE_HOME": str(folder.home),
        "FAIRSCRIBE_DATABASE_URL": database_url,
        "FAIRSCRIBE_REDIS_URL": redis_url,
        "FAIRSCRIBE_API_PORT": str(ports["api_port"]),
        "FAIRSCRIBE_FLOWER_PORT": str(ports["flower_port"]),
    }
    migrations = command(
        "migrations",
        command_line("migrations", settings),
        folder,
        env=env,
        ready_within_s=math.inf,
        once=True,
    )
    return Table(
        settings=settings,
        folder=folder,
        stages=(stores, (migrations,), _parts(settings, folder, env)),
        database_url=database_url,
        redis_url=redis_url,
        api=address(settings.api_host, ports["api_port"]),
        flower=address(settings.flower_host, ports["flower_port"]),
    )


def _stores(settings: Settings, folder: StateFolder) -> tuple[tuple[Part, ...], str, str]:
    parts = []
    database_url, redis_url = settings.database_url, settings.redis_url
    if database_url is None:
        postgres = Postgres(folder)
        database_url = postgres.url
        parts.append(_server(postgres, DATABASE, FAST_WITHIN_S, FAST))
    if redis_url is None:
        valkey = Valkey(folder)
        redis_url = valkey.url
        parts.append(_server(valkey, QUEUE, STOP_WITHIN_S, signal.SIGTERM))
    return tuple(parts), database_url, redis_url


def _server(
    server: Postgres | Valkey, rank: int, within_s: float, stop_signal: signal.Signals
) -> Part:
    return Part(
        name=server.name,
        launch=server.launch,
        ready=server.is_ready,
        log=server.log,
        ready_within_s=math.inf,  # it may have a long log to replay
        stop_rank=rank,
        stop_within_s=within_s,
        stop_signal=stop_signal,
        hurry_signal=None,  # it is quick, and hurried it would have to recover at the next start
    )


def _parts(settings: Settings, folder: StateFolder, env: dict[str, str]) -> tuple[Part, ...]:
    drain_s = settings.drain_s + AFTER_DRAIN_S

    def worker(name: str, ready_within_s: float) -> Part:
        return command(
            name,
            command_line(name, settings),
            folder,
            env=env,
            ready_within_s=ready_within_s,
            stop_rank=WORKERS,
            stop_within_s=drain_s,
            hurry_signal=signal.SIGQUIT,  # Celery: give back what is in hand, and end
        )

    return (
        command(
            "api",
            command_line("api", settings),
            folder,
            env=env,
            ready=answers_health(settings.api_host, settings.api_port),
            stop_rank=DOOR,
        ),
        worker("errands", 90.0),
        worker("survey", 120.0),
        # no limit: a first download of a large model takes what it takes, and a death is noticed
        worker("transcribe", math.inf),
        command(
            "flower",
            command_line("flower", settings),
            folder,
            env=env,
            ready=answers_port(settings.flower_host, settings.flower_port),
            stop_rank=WATCHERS,
        ),
    )
