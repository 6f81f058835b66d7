"""Jobs, their plans, finished windows, transcripts, and the order of work."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None

NOW = sa.text("clock_timestamp()")
STATES = (
    *("received", "probed", "surveying", "surveyed", "running"),
    *("completed", "failed", "cancelled"),
)


def upgrade() -> None:
    """Create the tables of the first release."""
    _create_jobs()
    op.create_table(
        "plans",
        _job_id(),
        sa.Column("plan_hash", sa.Text, nullable=False),
        sa.Column("artefact_key", sa.Text, nullable=False, comment="packed speech in storage"),
        sa.Column("plan", JSONB, nullable=False),
    )
    op.create_table(
        "windows",
        _job_id(),
        sa.Column("plan_hash", sa.Text, primary_key=True),
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("index", sa.Integer, primary_key=True),
        sa.Column("attempt", sa.Integer, nullable=False, comment="who heard it"),
        sa.Column("heard", JSONB, nullable=False),
        sa.Column("busy_s", sa.REAL, nullable=False),
        _stamp("saved_at"),
    )
    op.create_table(
        "transcripts",
        _job_id(),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("body", JSONB, nullable=False),
        _stamp("created_at"),
    )
    op.create_table(
        "policies",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        _stamp("changed_at"),
        comment="every change of the order of work; the newest row holds",
    )


def downgrade() -> None:
    """Drop them all."""
    for table in ("policies", "transcripts", "windows", "plans", "jobs"):
        op.drop_table(table)


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Uuid, primary_key=True, comment="UUIDv7: ids grow with time"),
        sa.Column("batch_id", sa.Text),
        sa.Column("file_name", sa.Text, nullable=False, comment="as sent; never used as a path"),
        sa.Column("metadata", JSONB, nullable=False, server_default=sa.text("'{}'")),
        sa.Column("options", JSONB, nullable=False, server_default=sa.text("'{}'")),
        sa.Column("language", sa.Text, comment="asked for; null: the installation's default"),
        sa.Column("storage_key", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column(
            "attempt", sa.Integer, nullable=False, server_default="0", comment="fencing token"
        ),
        sa.Column("survey_attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("crashes", sa.SmallInteger, nullable=False, server_default="0"),
        sa.Column("worker", sa.Text, comment="who was granted the newest attempt"),
        sa.Column("arrival_ms", sa.BigInteger, nullable=False, comment="ms of Postgres time"),
        sa.Column("bucket", sa.SmallInteger, comment="size bucket of the work that remains"),
        sa.Column("index_pending", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("duration_s", sa.Double),
        sa.Column("duration_source", sa.Text),
        sa.Column("duration_exact", sa.Boolean),
        sa.Column("container", sa.Text),
        sa.Column("codec", sa.Text),
        sa.Column("sample_rate_hz", sa.Integer),
        sa.Column("channels", sa.SmallInteger),
        sa.Column("probed_s", sa.Double, comment="length as probed, kept beside the decoded one"),
        sa.Column("probed_source", sa.Text),
        sa.Column("speech_s", sa.Double),
        sa.Column("plan_hash", sa.Text),
        sa.Column("windows_total", sa.Integer),
        sa.Column("windows_done", sa.Integer, nullable=False, server_default="0"),
        sa.Column("model", sa.Text),
        sa.Column("no_speech", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("degraded", sa.Text),
        sa.Column("error_code", sa.Text),
        sa.Column("error_message", sa.Text),
        _stamp("created_at"),
        sa.Column("started_at", sa.DateTime(timezone=True), comment="first grant of an engine"),
        sa.Column("first_text_at", sa.DateTime(timezone=True)),
        sa.Column("completed_at", sa.DateTime(timezone=True)),
        _stamp("updated_at"),
        sa.CheckConstraint(
            "state IN ({})".format(", ".join(f"'{state}'" for state in STATES)),
            name="jobs_state_known",
        ),
    )
    op.create_index("jobs_batch", "jobs", ["batch_id", "id"])
    op.create_index("jobs_state", "jobs", ["state", "id"])
    live = sa.text("state IN ('probed', 'surveying', 'surveyed', 'running')")
    op.create_index("jobs_live", "jobs", ["id"], postgresql_where=live)
    op.create_index("jobs_outbox", "jobs", ["id"], postgresql_where=sa.text("index_pending"))


def _job_id() -> sa.Column[object]:
    return sa.Column(
        "job_id", sa.Uuid, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True
    )


def _stamp(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False, server_default=NOW)
