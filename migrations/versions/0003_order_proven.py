"""How the order was decided, what work really took, trials of a policy, what forecasts said."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0003"
down_revision = "0002"

NOW = sa.text("clock_timestamp()")
WISHES = ("duration_hint_s", "deadline", "wait_budget_s")


def upgrade() -> None:
    """Add what order learns from; code of 0002 goes on working beside it."""
    stamp = {"nullable": False, "server_default": NOW}
    op.add_column(
        "jobs",
        sa.Column("duration_hint_s", sa.Double, comment="length as the sender says, not trusted"),
    )
    op.add_column(
        "jobs", sa.Column("deadline", sa.DateTime(timezone=True), comment="wanted by then")
    )
    op.add_column(
        "jobs", sa.Column("wait_budget_s", sa.Double, comment="how long it may wait for an engine")
    )
    op.create_index(
        "jobs_wishing",
        "jobs",
        ["id"],
        postgresql_where=sa.text(
            "state IN ('probed', 'surveyed') AND "
            "(deadline IS NOT NULL OR wait_budget_s IS NOT NULL)"
        ),
    )
    op.add_column(
        "policies",
        sa.Column(
            "mode",
            sa.Text,
            nullable=False,
            server_default="fixed",
            comment="who decides: fixed (a person), auto, trial",
        ),
    )
    op.create_table(
        "work_done",
        sa.Column(
            "job_id", sa.Uuid, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("language", sa.Text, nullable=False, comment="as it was heard"),
        sa.Column("speech_s", sa.Double, nullable=False),
        sa.Column("windows", sa.Integer, nullable=False),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("busy_s", sa.Double, nullable=False, comment="engine time, shared fairly"),
        sa.Column("predicted_s", sa.Double, nullable=False, comment="engine time as foretold"),
        sa.Column("ended_at", sa.DateTime(timezone=True), **stamp),
        comment="what finished jobs took: the work model learns from it",
    )
    op.create_index("work_done_newest", "work_done", ["model", "ended_at"])
    op.create_table(
        "work_models",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("job_s", sa.Double, nullable=False, comment="a: engine seconds a job"),
        sa.Column("window_s", sa.Double, nullable=False, comment="b: engine seconds a window"),
        sa.Column("token_s", sa.Double, nullable=False, comment="c: engine seconds a token"),
        sa.Column("kappa", JSONB, nullable=False, comment="tokens a second of speech, by language"),
        sa.Column("jobs", sa.Integer, nullable=False, comment="learned from so many"),
        sa.Column("r2", sa.Double, comment="share of the variance it explains"),
        sa.Column("learned_at", sa.DateTime(timezone=True), **stamp),
        sa.Index("work_models_newest", "model", "id"),
        comment="the work model as learned; the newest row of a model holds",
    )
    op.create_table(
        "trials",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("policy_a", sa.Text, nullable=False, comment="in force before, and returned to"),
        sa.Column("mode_a", sa.Text, nullable=False, comment="who decided it"),
        sa.Column("policy_b", sa.Text, nullable=False, comment="on trial"),
        sa.Column("block_s", sa.Double, nullable=False),
        sa.Column("blocks", sa.Integer, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False, comment="of the order of blocks"),
        sa.Column("keep_better", sa.Boolean, nullable=False, comment="keep B if it is better"),
        sa.Column("state", sa.Text, nullable=False, comment="running, kept, returned or stopped"),
        sa.Column("result", JSONB, comment="the comparison as it last stood"),
        sa.Column("reason", sa.Text, comment="why it ended"),
        sa.Column("started_at", sa.DateTime(timezone=True), **stamp),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Index(
            "trials_one",
            "state",
            unique=True,
            postgresql_where=sa.text("state = 'running'"),
        ),
        comment="policies tried on live work, block by block",
    )
    op.create_table(
        "forecasts",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("job_id", sa.Uuid, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("kind", sa.Text, nullable=False, comment="where the job stood"),
        sa.Column("made_at", sa.DateTime(timezone=True), **stamp),
        sa.Column("raw_s", sa.Double, nullable=False, comment="by queue arithmetic alone"),
        sa.Column("p50_s", sa.Double, nullable=False),
        sa.Column("p90_s", sa.Double, nullable=False),
        sa.Column("truth_s", sa.Double, comment="null until the job has ended"),
        sa.Index("forecasts_job", "job_id"),
        sa.Index("forecasts_newest", "made_at"),
        comment="a sample of what was foretold, and how it came",
    )


def downgrade() -> None:
    """Take it away again; the order of work stays one that code of 0002 can read.

    A trial under way ends with A. Of hrrn(g,K) it knows hrrn(g).
    """
    op.execute(
        "INSERT INTO policies (policy, reason)"
        " SELECT policy_a, 'Trial ' || id || ' ended with its table. Back to ' || policy_a || '.'"
        " FROM trials WHERE state = 'running'"
    )
    op.execute("UPDATE policies SET policy = regexp_replace(policy, ',.*\\)', ')')")
    for table in ("forecasts", "trials", "work_models", "work_done"):
        op.drop_table(table)
    op.drop_column("policies", "mode")
    op.drop_index("jobs_wishing")
    for column in WISHES:
        op.drop_column("jobs", column)
