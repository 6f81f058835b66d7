"""The Celery app every process of ours shares: one broker, JSON only, hints instead of promises.

Celery carries errands and events. The jobs themselves wait in our own sorted sets: a broker message
can be lost between Redis and a worker, a row in Postgres cannot.
"""

from __future__ import annotations

from typing import Any

from celery import Celery
from kombu.transport import redis as transport
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from pipeline.handover import ERRANDS_QUEUE
from pipeline.settings import Settings, broker_tls, celery_broker_url, read_settings

# Redis answers an error while its disk is full, its memory is, or another server has become the
# master. Celery would end the worker; as an error of the connection it is waited out.
transport.Transport.connection_errors += (ResponseError,)


class _Channel(transport.Channel):
    """A channel whose connection was given up says so in a way that Celery expects.

    With messages in hand when the broker is lost, kombu 5.7 goes back to the old channel to restore
    or acknowledge them, and the AttributeError it meets there ends the worker. A connection error
    is passed over: such messages are delivered again after `visibility_timeout`.
    """

    def _create_client(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super()._create_client(*arguments, **options)  # type: ignore[no-untyped-call]
        except AttributeError as gone:
            raise RedisConnectionError("the connection of this channel was given up") from gone


transport.Transport.Channel = _Channel


def make_app(settings: Settings) -> Celery:
    """The app for `settings`; without a Redis URL it can be imported but reaches no broker."""
    broker = celery_broker_url(settings.redis_url) if settings.redis_url else "memory://"
    app = Celery("fairscribe", broker=broker)
    if settings.redis_url and (tls := broker_tls(settings.redis_url)):
        app.conf.broker_use_ssl = tls
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        task_ignore_result=True,
        task_default_queue=ERRANDS_QUEUE,
        # a message is acknowledged after the errand: a killed worker's comes again
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        worker_send_task_events=True,
        worker_hijack_root_logger=False,
        # a broker outage must not end work in hand; our leases decide about that
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": 120,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "socket_timeout": 10,
            "socket_keepalive": True,
            "health_check_interval": 10,
        },
    )
    return app


app = make_app(read_settings())
