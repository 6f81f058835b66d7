"""Checks of what runs: the API, and the workers of every kind."""

from __future__ import annotations

import httpx
import redis
from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from pipeline.cli.checks.stores import START, WAIT_S
from pipeline.cli.checks.verdict import Here, Verdict, fine, problem
from pipeline.cli.service import NotFairscribe, connect
from pipeline.errors import FairscribeError, NotAllowed, PartDown
from pipeline.queue import keys
from pipeline.queue.board import Board
from pipeline.settings import celery_broker_url, is_loopback

KINDS = ("errands", "survey", "transcribe")
PING_S = 2.0


def api(here: Here) -> Verdict:
    """It answers, can reach what it needs, and lets us in."""
    try:
        service = connect(here.settings, httpx.Timeout(WAIT_S))
        service.get("/v1/health")
    except NotFairscribe as other:
        cure = "Set FAIRSCRIBE_API_URL to where it is, or FAIRSCRIBE_API_PORT to another port."
        return problem("api", other.message, cure)
    except PartDown as down:
        cure = f"{START}, or set FAIRSCRIBE_API_URL to where it runs."
        return problem("api", down.message.split(" Start it ")[0], cure)
    except FairscribeError as refused:
        said = f"What answers at {service.url} has no health to tell of: {refused.message}"
        return problem("api", said, "Set FAIRSCRIBE_API_URL to where the API is, without a path.")
    try:
        service.get("/v1/health/ready")
        service.get("/v1/me")
    except NotAllowed as refused:
        said = f"The API at {service.url} works, and does not let this shell in: {refused.code}."
        cure = "Set FAIRSCRIBE_API_KEY; `fairscribe key add NAME`, where Postgres is, makes a key."
        if here.settings.api_key is not None:
            cure = (
                "Set FAIRSCRIBE_API_KEY to a key that is active: `fairscribe key list`, where "
                "Postgres is, shows them, and `fairscribe key add NAME` makes one."
            )
        return problem("api", said, cure)
    except FairscribeError as unready:
        said = f"The API at {service.url} answers, and cannot work: {unready.message}"
        return problem("api", said, "Look at what postgres and redis say here.")
    finally:
        service.close()
    return fine("api", f"The API answers at {service.url}.")


def flower(here: Here) -> Verdict:
    """Nobody can stop workers by it who was not given a password."""
    settings = here.settings
    if settings.flower_auth is None and not is_loopback(settings.flower_host):
        said = (
            f"Flower will not start: it is to listen at {settings.flower_host} without a password."
        )
        return problem("flower", said, "Set FAIRSCRIBE_FLOWER_AUTH to user:password.")
    if not settings.flower_control:
        return fine("flower", "Flower only shows.")
    if settings.flower_auth is None:
        said = "Flower lets anybody cancel jobs and stop workers, any page open in a browser too."
        cure = "Set FAIRSCRIBE_FLOWER_AUTH to user:password, or FAIRSCRIBE_FLOWER_CONTROL=false."
        return problem("flower", said, cure)
    said = "Flower lets whoever has its password cancel jobs and stop workers."
    return fine("flower", said)


def workers(here: Here) -> Verdict:
    """There is one of each kind, so that nothing waits for nobody."""
    if here.redis_url is None:
        cure = f"{START}, or set FAIRSCRIBE_REDIS_URL."
        return problem("workers", "Workers are asked through Redis, which is not known.", cure)
    try:
        alive = _alive(here.redis_url)
        waiting = _waiting(here.redis_url)
        short = _short_of_memory(here.redis_url)
    except (OperationalError, RedisError, OSError, ValueError):
        said = "Workers are asked through Redis, which does not answer."
        return problem("workers", said, "Cure redis first.")
    missing = [kind for kind in KINDS if kind not in alive]
    if not missing and short:
        cure = (
            "Give it more memory, a smaller model, or fewer slots by FAIRSCRIBE_SLOTS; then start"
        )
        return problem("workers", f"{'; '.join(short)}.", f"{cure} it again.")
    if not missing:
        return fine("workers", f"Workers answer: {', '.join(sorted(alive))}.")
    waits = [f"{waiting[kind]:,} jobs wait for {kind}" for kind in missing if waiting.get(kind)]
    said = f"No worker answers that does {' or '.join(missing)}"
    said += f"; {' and '.join(waits)}." if waits else "."
    log = "see logs/NAME.log in the state folder" if here.up else "see its log"
    cure = f"Start one with `python -m workers.run {missing[0]}`; if it should run, {log}."
    return problem("workers", said, cure)


def _alive(redis_url: str) -> set[str]:
    """Kinds of the workers that answer: a worker is called KIND@machine."""
    client = Celery("doctor", broker=celery_broker_url(redis_url), set_as_current=False)
    client.conf.update(
        broker_connection_timeout=PING_S,
        broker_transport_options={"socket_timeout": 3.0, "socket_connect_timeout": 2.0},
    )
    with client:
        answers = client.control.ping(timeout=PING_S)
    return {name.partition("@")[0] for answer in answers or [] for name in answer}


def _short_of_memory(redis_url: str) -> list[str]:
    """What is to be told of workers whose engines ran out of memory."""
    client = redis.Redis.from_url(
        redis_url, socket_timeout=3.0, socket_connect_timeout=3.0, decode_responses=True
    )
    workers = Board(client, "transcribe").speeds()
    return [
        f"{w.worker} ran out of memory: it hears {w.slots} windows at once and not {w.slots_wanted}"
        for w in workers
        if w.slots < w.slots_wanted
    ]


def _waiting(redis_url: str) -> dict[str, int]:
    client = redis.Redis.from_url(redis_url, socket_timeout=3.0, socket_connect_timeout=3.0)
    return {stage: int(client.zcard(keys.ready(stage))) for stage in ("survey", "transcribe")}
