"""Languages that were heard out, recordings named by URL, submissions that may be sent twice."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"

NOW = sa.text("clock_timestamp()")


def upgrade() -> None:
    """Add what the whole of the API needs; code of 0001 goes on working beside it."""
    op.add_column(
        "jobs",
        sa.Column("detected_language", sa.Text, comment="heard out, when none was asked for"),
    )
    op.add_column(
        "jobs",
        sa.Column("source_url", sa.Text, comment="where to fetch it; null: it was uploaded"),
    )
    ended = sa.text("completed_at IS NOT NULL")
    op.create_index(
        "jobs_ended", "jobs", ["batch_id", "completed_at", "id"], postgresql_where=ended
    )
    op.create_table(
        "submissions",
        sa.Column("key", sa.Text, primary_key=True, comment="Idempotency-Key"),
        sa.Column("fingerprint", sa.Text, nullable=False, comment="hash of what was asked"),
        sa.Column("job_ids", JSONB, nullable=False, comment="chosen before the first is accepted"),
        sa.Column("answer", JSONB, comment="null while it is worked on"),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        comment="requests that may be sent twice and are carried out once",
    )
    op.create_index("submissions_age", "submissions", ["claimed_at"])


def downgrade() -> None:
    """Take it away again."""
    op.drop_table("submissions")
    op.drop_index("jobs_ended", "jobs")
    op.drop_column("jobs", "source_url")
    op.drop_column("jobs", "detected_language")
