"""Tenants and their keys, webhooks, retention, and who read what."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0005"
down_revision = "0004"

NOW = sa.func.clock_timestamp()


def upgrade() -> None:
    """Add what jobs and callers need; code of 0004 goes on working beside it."""
    for column in (
        sa.Column(
            "tenant", sa.Text, comment="whose it is, by the key it came with; null: keys were off"
        ),
        sa.Column(
            "counted_ms",
            sa.BigInteger,
            comment="arrival as ranks count it, by its tenant's virtual clock; null: arrival_ms",
        ),
        sa.Column("audio_erased_at", sa.DateTime(timezone=True), comment="when its days were over"),
        sa.Column(
            "transcript_erased_at", sa.DateTime(timezone=True), comment="when its days were over"
        ),
    ):
        op.add_column("jobs", column)
    op.create_table(
        "tenants",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column(
            "share", sa.Double, comment="reference slot seconds a second; null: an equal part"
        ),
        sa.Column(
            "clock_ms",
            sa.BigInteger,
            nullable=False,
            server_default="0",
            comment="virtual clock, ms of Postgres time: see scheduling/shares.py",
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        comment="who shares this installation; each sees only what is its own",
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text, primary_key=True, comment="the part of the key that is no secret"),
        sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), nullable=False),
        sa.Column("name", sa.Text, nullable=False, comment="what a person calls it"),
        sa.Column("secret_hash", sa.Text, nullable=False, comment="sha256 of the secret, hex"),
        sa.Column(
            "scopes", JSONB, nullable=False, comment="what it allows: see pipeline/caller.py"
        ),
        sa.Column("rate_per_s", sa.Double, comment="requests a second; null: as the settings say"),
        sa.Column("rate_burst", sa.Integer, comment="requests at once; null: as the settings say"),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.Column("expires_at", sa.DateTime(timezone=True)),
        sa.Column("last_used_at", sa.DateTime(timezone=True), comment="to the minute"),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        comment="keys to the HTTP door; the secret itself is shown once and kept nowhere",
    )
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("tenant", sa.Text, comment="whose jobs it tells of; null: keys were off"),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("secret", sa.Text, nullable=False, comment="signs what is sent; shown once"),
        sa.Column("old_secret", sa.Text, comment="the one before: signs beside it for a while"),
        sa.Column("old_secret_until", sa.DateTime(timezone=True)),
        sa.Column("events", JSONB, nullable=False, comment="which it tells of"),
        sa.Column(
            "failing_since",
            sa.DateTime(timezone=True),
            comment="no delivery has come through since",
        ),
        sa.Column(
            "paused_at", sa.DateTime(timezone=True), comment="nothing is sent; null: it is active"
        ),
        sa.Column("paused_reason", sa.Text),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        comment="where callers want to be told of jobs that ended",
    )
    op.create_table(
        "deliveries",
        sa.Column(
            "id", sa.Uuid, primary_key=True, comment="stays the same however often it is sent"
        ),
        sa.Column(
            "webhook_id", sa.Uuid, sa.ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column(
            "job_id",
            sa.Uuid,
            sa.ForeignKey("jobs.id", ondelete="CASCADE"),
            comment="null: a ping, of no job",
        ),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column(
            "body", sa.Text, nullable=False, comment="JSON as it is sent and signed; no content"
        ),
        sa.Column(
            "attempts",
            sa.Integer,
            nullable=False,
            server_default="0",
            comment="begun so far; fences what each of them writes",
        ),
        sa.Column(
            "failures",
            sa.Integer,
            nullable=False,
            server_default="0",
            comment="since it was written, or sent again by hand",
        ),
        sa.Column(
            "attempted_at", sa.DateTime(timezone=True), comment="when the last attempt began"
        ),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.Column("delivered_at", sa.DateTime(timezone=True)),
        sa.Column("given_up_at", sa.DateTime(timezone=True)),
        sa.Column("last_status", sa.Integer, comment="HTTP status of the last answer"),
        sa.Column("last_error", sa.Text, comment="why the last attempt failed"),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        comment="outbox of webhooks: written in the transaction that ends the job",
    )
    op.create_index(
        "deliveries_due",
        "deliveries",
        ["webhook_id", "due_at"],
        postgresql_where=sa.text("delivered_at IS NULL AND given_up_at IS NULL"),
    )
    op.create_index(
        "deliveries_pings",
        "deliveries",
        ["webhook_id"],
        postgresql_where=sa.text("event = 'ping' AND delivered_at IS NULL AND given_up_at IS NULL"),
    )
    op.create_index(
        "deliveries_given_up",
        "deliveries",
        ["id"],
        postgresql_where=sa.text("given_up_at IS NOT NULL"),
    )
    op.create_index("deliveries_of_webhook", "deliveries", ["webhook_id", "created_at"])
    op.create_index("deliveries_of_job", "deliveries", ["job_id"])
    op.create_table(
        "accesses",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.Column("tenant", sa.Text),
        sa.Column(
            "key_id", sa.Text, comment="who; null: keys were off, or this machine's command line"
        ),
        sa.Column("action", sa.Text, nullable=False, comment="read, listened, erased, ..."),
        sa.Column("job_id", sa.Uuid, comment="no foreign key: it outlives the job"),
        sa.Column(
            "detail", sa.Text, comment="format of a transcript, or id of a key; never content"
        ),
        comment="who read, heard or erased what, without content",
    )
    op.create_index("accesses_job", "accesses", ["job_id", "id"])
    op.create_index("accesses_at", "accesses", ["at"])


def downgrade() -> None:
    """Take them away."""
    for name in ("accesses", "deliveries", "webhooks", "api_keys", "tenants"):
        op.drop_table(name)
    for name in ("transcript_erased_at", "audio_erased_at", "counted_ms", "tenant"):
        op.drop_column("jobs", name)
