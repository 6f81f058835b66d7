"""What probes and surveys say of a recording, languages by channel, calls in several files."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0004"
down_revision = "0003"

CALL_ID = sa.text("(metadata ->> 'call_id')")


def upgrade() -> None:
    """Add what is told of lengths and channels; code of 0003 goes on working beside it."""
    for column in (
        sa.Column("probe_reason", sa.Text, comment="why a cheaper source was not believed"),
        sa.Column("transcribed_s", sa.Double, comment="speech with words that nobody doubts"),
        sa.Column("channel_languages", JSONB, comment="heard out, by channel of the plan"),
    ):
        op.add_column("jobs", column)
    op.create_index(
        "jobs_call",
        "jobs",
        [CALL_ID],
        postgresql_using="hash",  # a btree refuses rows with a long id, a hash takes any
        postgresql_where=sa.text("metadata ->> 'call_id' IS NOT NULL"),
    )


def downgrade() -> None:
    """Take them away."""
    op.drop_index("jobs_call", "jobs")
    for name in ("channel_languages", "transcribed_s", "probe_reason"):
        op.drop_column("jobs", name)
