"""Indexes of large tables, made while everybody goes on writing: whose days are over.

Each is made CONCURRENTLY, outside any transaction. One that was cut short is left invalid and in
the way: it is dropped first.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

INDEXES = {
    "jobs_tenant": "jobs (tenant, id) WHERE tenant IS NOT NULL",
    "jobs_kept": "jobs (completed_at, id) WHERE completed_at IS NOT NULL",
    "jobs_audio_kept": "jobs (completed_at, id)"
    " WHERE completed_at IS NOT NULL AND audio_erased_at IS NULL",
    "jobs_transcript_kept": "jobs (completed_at, id)"
    " WHERE state = 'completed' AND transcript_erased_at IS NULL",
    "submissions_jobs": "submissions USING gin (job_ids)",
}


def upgrade() -> None:
    """Make the indexes that are missing; code of 0005 goes on working beside it."""
    with op.get_context().autocommit_block():
        for name, what in INDEXES.items():
            if name in _invalid():
                op.execute(f"DROP INDEX CONCURRENTLY {name}")
            op.execute(f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {what}")


def downgrade() -> None:
    """Take them away."""
    for name in INDEXES:
        op.execute(f"DROP INDEX IF EXISTS {name}")


def _invalid() -> set[str]:
    query = "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid"
    return set(op.get_bind().execute(sa.text(query)).scalars())
