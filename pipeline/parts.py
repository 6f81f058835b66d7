"""The only place where settings become things: store, storage, queues."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine

from pipeline.breaker import Breaker
from pipeline.errors import BadSetting, PartDown
from pipeline.handover import Handover
from pipeline.intake.storage import Storage
from pipeline.job import STAGES
from pipeline.logs import log
from pipeline.queue.rates import Rates
from pipeline.queue.redis_queue import RedisQueue, connect
from pipeline.settings import Settings, celery_broker_url, sqlalchemy_url
from pipeline.steps.forecast.outlooks import Outlooks
from pipeline.store.retention import Keep
from pipeline.store.session import breaker_of, open_store


@dataclass(frozen=True)
class Parts:
    """What a process works with. Nothing connects before it is used.

    Storage is a folder under home: workers on other machines need it mounted there.
    """

    settings: Settings
    store: Engine
    storage: Storage
    queues: dict[str, RedisQueue]
    """By stage name."""
    handover: Handover
    rates: Rates
    """How often callers may ask."""
    outlooks: Outlooks
    """How both lines stand, for forecasts."""

    breakers: tuple[Breaker, ...]
    """Whether each part that can be away is asked at present."""

    @property
    def keep(self) -> Keep:
        """How long what is kept."""
        return Keep(
            audio_days=self.settings.keep_audio_days,
            packed_days=self.settings.keep_packed_days,
            transcripts_days=self.settings.keep_transcripts_days,
            jobs_days=self.settings.keep_jobs_days,
            accesses_days=self.settings.keep_accesses_days,
        )


def open_parts(settings: Settings) -> Parts:
    """Make the parts `settings` describe.

    Raises `BadSetting` when it is not said where Postgres or Redis is: `fairscribe up` says it to
    its own processes.
    """
    if settings.database_url is None or settings.redis_url is None:
        missing = "DATABASE" if settings.database_url is None else "REDIS"
        raise BadSetting(
            f"FAIRSCRIBE_{missing}_URL is not set; `fairscribe up` sets it for the parts it starts"
        )
    client = connect(settings.redis_url)
    store = open_store(sqlalchemy_url(settings.database_url))
    timing = {"lease_s": settings.lease_s, "max_wait_s": settings.max_wait_s}
    queues = {stage.name: RedisQueue(client, stage.name, **timing) for stage in STAGES}
    storage = Storage(settings.home / "storage")
    handover = Handover(celery_broker_url(settings.redis_url))
    return Parts(
        settings=settings,
        store=store,
        storage=storage,
        queues=queues,
        handover=handover,
        rates=Rates(settings.redis_url, tell_of_rates),
        outlooks=Outlooks(store, queues, settings),
        breakers=(breaker_of(store), client.breaker, handover.breaker, storage.breaker),
    )


def tell_of_rates(down: PartDown | None) -> None:
    """Say in the log that nobody's rate is limited for now, or is again."""
    if down is not None:
        log().warning("rate_not_limited", why=down.message)
    else:
        log().info("rate_limited_again")
