"""What webhooks are to be told of a job is written in the very transaction that ends it.

So it is told if and only if the job ended, whatever dies in between. Called by `rows.move` alone,
through which every job ends: nobody can forget it. Where nobody listens it costs a look at a small
table.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection, exists, text

from pipeline.store.tables import jobs, webhooks

HEARD = (
    exists()
    .where(webhooks.c.tenant.is_not_distinct_from(jobs.c.tenant))
    .correlate(jobs)
    .label("heard")
)
"""Whether a job's tenant has a webhook: a column of the statement that ends the job."""

# SQL as it stands, not put together: that would cost each ending more than Postgres takes for it.
# The colons of the time are no parameters, so they are escaped.
_BODY = r"""
    json_build_object(
        'id', one.id,
        'type', one.event,
        'created_at',
        to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24\:MI\:SS.US"Z"'),
        'data', json_build_object(
            'job_id', one.job_id,
            'batch_id', one.batch_id,
            'status', one.state,
            'error', CASE WHEN one.error_code IS NOT NULL
                     THEN json_build_object('code', one.error_code) END,
            'links', json_build_object(
                'job', '/v1/jobs/' || one.job_id,
                'transcript', CASE WHEN one.state = 'completed'
                              THEN '/v1/jobs/' || one.job_id || '/transcript' END
            )
        )
    )
"""
"""What is sent: ids and what became of the job; nothing of what was said, no name, no metadata."""

_WRITE = """
    WITH one AS MATERIALIZED (%s)
    INSERT INTO deliveries (id, webhook_id, job_id, event, body)
    SELECT one.id, one.webhook_id, one.job_id, one.event, CAST({body} AS text) FROM one
""".replace("{body}", _BODY)

# a webhook that is being deleted is passed over: its foreign key would fail, and the job with it
_ENDED = text(
    _WRITE
    % """
        SELECT gen_random_uuid() AS id, w.id AS webhook_id, j.id AS job_id,
               'job.' || j.state AS event, j.batch_id, j.state, j.error_code
        FROM jobs j JOIN webhooks w ON w.tenant IS NOT DISTINCT FROM j.tenant
        WHERE j.id = ANY(:job_ids) AND w.events ? ('job.' || j.state)
        FOR KEY SHARE OF w
    """
)

_PING = text(
    _WRITE
    % """
        SELECT gen_random_uuid() AS id, w.id AS webhook_id, CAST(NULL AS uuid) AS job_id,
               'ping' AS event, CAST(NULL AS text) AS batch_id, CAST(NULL AS text) AS state,
               CAST(NULL AS text) AS error_code
        FROM webhooks w WHERE w.id = :webhook_id
        FOR KEY SHARE OF w
    """
    + " RETURNING id"
)


def tell(c: Connection, job_ids: Sequence[UUID]) -> None:
    """These jobs have just ended: write a delivery of each for every webhook of its tenant that
    wants to know, also for one that is paused.
    """
    c.execute(_ENDED, {"job_ids": list(job_ids)})


def ping(c: Connection, webhook_id: str) -> str | None:
    """Write a delivery that tells of no job; its id, None when there is no such webhook."""
    made = c.execute(_PING, {"webhook_id": UUID(webhook_id)}).scalar_one_or_none()
    return str(made) if made else None
