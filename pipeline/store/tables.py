"""The tables, as SQLAlchemy sees them. migrations/ creates them; a test compares the two."""

from __future__ import annotations

from sqlalchemy import (
    REAL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from pipeline.job import STAGES, State

metadata = MetaData()

_states = ", ".join(f"'{state.value}'" for state in State)
_live = ", ".join(
    f"'{state.value}'" for stage in STAGES for state in (stage.waiting, stage.working)
)
_waiting = ", ".join(f"'{stage.waiting.value}'" for stage in STAGES)
WISHING = f"state IN ({_waiting}) AND (deadline IS NOT NULL OR wait_budget_s IS NOT NULL)"
"""Waiting jobs that can be late, in the words of their index: a query must say it alike."""
_now = func.clock_timestamp()
ENDED = "completed_at IS NOT NULL"
AUDIO_KEPT = "completed_at IS NOT NULL AND audio_erased_at IS NULL"
TRANSCRIPT_KEPT = "state = 'completed' AND transcript_erased_at IS NULL"
"""Of which jobs something is kept whose days may be over, in the words of their indexes."""
CALL_ID = text("(metadata ->> 'call_id')")
"""What joins the recordings of one call's sides, in the words of its index."""

jobs = Table(
    "jobs",
    metadata,
    Column("id", Uuid, primary_key=True, comment="UUIDv7: ids grow with time"),
    Column("batch_id", Text),
    Column("file_name", Text, nullable=False, comment="as sent; never used as a path"),
    Column("metadata", JSONB, nullable=False, server_default=text("'{}'")),
    Column("options", JSONB, nullable=False, server_default=text("'{}'")),
    Column("language", Text, comment="asked for; null: the installation's default"),
    Column("storage_key", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False, server_default="0", comment="fencing token"),
    Column("survey_attempts", Integer, nullable=False, server_default="0"),
    Column("crashes", SmallInteger, nullable=False, server_default="0"),
    Column("worker", Text, comment="who was granted the newest attempt"),
    Column("arrival_ms", BigInteger, nullable=False, comment="ms of Postgres time"),
    Column("bucket", SmallInteger, comment="size bucket of the work that remains"),
    Column("index_pending", Boolean, nullable=False, server_default=text("false")),
    Column("duration_s", Double),
    Column("duration_source", Text),
    Column("duration_exact", Boolean),
    Column("container", Text),
    Column("codec", Text),
    Column("sample_rate_hz", Integer),
    Column("channels", SmallInteger),
    Column("probed_s", Double, comment="length as probed, kept beside the decoded one"),
    Column("probed_source", Text),
    Column("probe_reason", Text, comment="why a cheaper source was not believed"),
    Column("speech_s", Double),
    Column("transcribed_s", Double, comment="speech with words that nobody doubts"),
    Column("plan_hash", Text),
    Column("windows_total", Integer),
    Column("windows_done", Integer, nullable=False, server_default="0"),
    Column("model", Text),
    Column("detected_language", Text, comment="heard out, when none was asked for"),
    Column("channel_languages", JSONB, comment="heard out, by channel of the plan"),
    Column("source_url", Text, comment="where to fetch it; null: it was uploaded"),
    Column("duration_hint_s", Double, comment="length as the sender says, not trusted"),
    Column("deadline", DateTime(timezone=True), comment="wanted by then"),
    Column("wait_budget_s", Double, comment="how long it may wait for an engine"),
    Column("tenant", Text, comment="whose it is, by the key it came with; null: keys were off"),
    Column(
        "counted_ms",
        BigInteger,
        comment="arrival as ranks count it, by its tenant's virtual clock; null: arrival_ms",
    ),
    Column("audio_erased_at", DateTime(timezone=True), comment="when its days were over"),
    Column("transcript_erased_at", DateTime(timezone=True), comment="when its days were over"),
    Column("no_speech", Boolean, nullable=False, server_default=text("false")),
    Column("degraded", Text),
    Column("error_code", Text),
    Column("error_message", Text),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=_now),
    Column("started_at", DateTime(timezone=True), comment="first grant of an engine"),
    Column("first_text_at", DateTime(timezone=True)),
    Column("completed_at", DateTime(timezone=True)),
    Column("updated_at", DateTime(timezone=True), nullable=False, server_default=_now),
    CheckConstraint(f"state IN ({_states})", name="jobs_state_known"),
    Index("jobs_batch", "batch_id", "id"),
    Index("jobs_state", "state", "id"),
    Index("jobs_tenant", "tenant", "id", postgresql_where=text("tenant IS NOT NULL")),
    Index("jobs_live", "id", postgresql_where=text(f"state IN ({_live})")),
    Index("jobs_outbox", "id", postgresql_where=text("index_pending")),
    Index(
        "jobs_call",
        CALL_ID,
        postgresql_using="hash",  # a btree refuses rows with a long id, a hash takes any
        postgresql_where=text("metadata ->> 'call_id' IS NOT NULL"),
    ),
    Index("jobs_wishing", "id", postgresql_where=text(WISHING)),
    Index(
        "jobs_ended",
        "batch_id",
        "completed_at",
        "id",
        postgresql_where=text("completed_at IS NOT NULL"),
    ),
    Index("jobs_kept", "completed_at", "id", postgresql_where=text(ENDED)),
    Index("jobs_audio_kept", "completed_at", "id", postgresql_where=text(AUDIO_KEPT)),
    Index("jobs_transcript_kept", "completed_at", "id", postgresql_where=text(TRANSCRIPT_KEPT)),
)

plans = Table(
    "plans",
    metadata,
    Column("job_id", Uuid, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("plan_hash", Text, nullable=False),
    Column("artefact_key", Text, nullable=False, comment="packed speech in storage"),
    Column("plan", JSONB, nullable=False),
)

windows = Table(
    "windows",
    metadata,
    Column("job_id", Uuid, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("plan_hash", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("index", Integer, primary_key=True),
    Column("attempt", Integer, nullable=False, comment="who heard it"),
    Column("heard", JSONB, nullable=False),
    Column("busy_s", REAL, nullable=False),
    Column("saved_at", DateTime(timezone=True), nullable=False, server_default=_now),
)

transcripts = Table(
    "transcripts",
    metadata,
    Column("job_id", Uuid, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("attempt", Integer, nullable=False),
    Column("body", JSONB, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=_now),
)

policies = Table(
    "policies",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("policy", Text, nullable=False),
    Column(
        "mode",
        Text,
        nullable=False,
        server_default="fixed",
        comment="who decides: fixed (a person), auto, trial",
    ),
    Column("reason", Text, nullable=False),
    Column("changed_at", DateTime(timezone=True), nullable=False, server_default=_now),
    comment="every change of the order of work; the newest row holds",
)

submissions = Table(
    "submissions",
    metadata,
    Column("key", Text, primary_key=True, comment="Idempotency-Key"),
    Column("fingerprint", Text, nullable=False, comment="hash of what was asked"),
    Column("job_ids", JSONB, nullable=False, comment="chosen before the first is accepted"),
    Column("answer", JSONB, comment="null while it is worked on"),
    Column("claimed_at", DateTime(timezone=True), nullable=False, server_default=_now),
    Index("submissions_age", "claimed_at"),
    Index("submissions_jobs", "job_ids", postgresql_using="gin"),
    comment="requests that may be sent twice and are carried out once",
)

work_done = Table(
    "work_done",
    metadata,
    Column("job_id", Uuid, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("model", Text, nullable=False),
    Column("language", Text, nullable=False, comment="as it was heard"),
    Column("speech_s", Double, nullable=False),
    Column("windows", Integer, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("busy_s", Double, nullable=False, comment="engine time, shared fairly"),
    Column("predicted_s", Double, nullable=False, comment="engine time as foretold"),
    Column("ended_at", DateTime(timezone=True), nullable=False, server_default=_now),
    Index("work_done_newest", "model", "ended_at"),
    comment="what finished jobs took: the work model learns from it",
)

work_models = Table(
    "work_models",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("model", Text, nullable=False),
    Column("job_s", Double, nullable=False, comment="a: engine seconds a job"),
    Column("window_s", Double, nullable=False, comment="b: engine seconds a window"),
    Column("token_s", Double, nullable=False, comment="c: engine seconds a token"),
    Column("kappa", JSONB, nullable=False, comment="tokens a second of speech, by language"),
    Column("jobs", Integer, nullable=False, comment="learned from so many"),
    Column("r2", Double, comment="share of the variance it explains"),
    Column("learned_at", DateTime(timezone=True), nullable=False, server_default=_now),
    Index("work_models_newest", "model", "id"),
    comment="the work model as learned; the newest row of a model holds",
)

trials = Table(
    "trials",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("policy_a", Text, nullable=False, comment="in force before, and returned to"),
    Column("mode_a", Text, nullable=False, comment="who decided it"),
    Column("policy_b", Text, nullable=False, comment="on trial"),
    Column("block_s", Double, nullable=False),
    Column("blocks", Integer, nullable=False),
    Column("seed", BigInteger, nullable=False, comment="of the order of blocks"),
    Column("keep_better", Boolean, nullable=False, comment="keep B if it is better"),
    Column("state", Text, nullable=False, comment="running, kept, returned or stopped"),
    Column("result", JSONB, comment="the comparison as it last stood"),
    Column("reason", Text, comment="why it ended"),
    Column("started_at", DateTime(timezone=True), nullable=False, server_default=_now),
    Column("ended_at", DateTime(timezone=True)),
    Index("trials_one", "state", unique=True, postgresql_where=text("state = 'running'")),
    comment="policies tried on live work, block by block",
)

forecasts = Table(
    "forecasts",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("job_id", Uuid, ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("kind", Text, nullable=False, comment="where the job stood"),
    Column("made_at", DateTime(timezone=True), nullable=False, server_default=_now),
    Column("raw_s", Double, nullable=False, comment="by queue arithmetic alone"),
    Column("p50_s", Double, nullable=False),
    Column("p90_s", Double, nullable=False),
    Column("truth_s", Double, comment="null until the job has ended"),
    Index("forecasts_job", "job_id"),
    Index("forecasts_newest", "made_at"),
    comment="a sample of what was foretold, and how it came",
)

tenants = Table(
    "tenants",
    metadata,
    Column("name", Text, primary_key=True),
    Column("share", Double, comment="reference slot seconds a second; null: an equal part"),
    Column(
        "clock_ms",
        BigInteger,
        nullable=False,
        server_default="0",
        comment="virtual clock, ms of Postgres time: see scheduling/shares.py",
    ),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=_now),
    comment="who shares this installation; each sees only what is its own",
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True, comment="the part of the key that is no secret"),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("name", Text, nullable=False, comment="what a person calls it"),
    Column("secret_hash", Text, nullable=False, comment="sha256 of the secret, hex"),
    Column("scopes", JSONB, nullable=False, comment="what it allows: see pipeline/caller.py"),
    Column("rate_per_s", Double, comment="requests a second; null: as the settings say"),
    Column("rate_burst", Integer, comment="requests at once; null: as the settings say"),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=_now),
    Column("expires_at", DateTime(timezone=True)),
    Column("last_used_at", DateTime(timezone=True), comment="to the minute"),
    Column("revoked_at", DateTime(timezone=True)),
    comment="keys to the HTTP door; the secret itself is shown once and kept nowhere",
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant", Text, comment="whose jobs it tells of; null: keys were off"),
    Column("url", Text, nullable=False),
    Column("secret", Text, nullable=False, comment="signs what is sent; shown once"),
    Column("old_secret", Text, comment="the one before: signs beside it for a while"),
    Column("old_secret_until", DateTime(timezone=True)),
    Column("events", JSONB, nullable=False, comment="which it tells of"),
    Column("failing_since", DateTime(timezone=True), comment="no delivery has come through since"),
    Column("paused_at", DateTime(timezone=True), comment="nothing is sent; null: it is active"),
    Column("paused_reason", Text),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=_now),
    comment="where callers want to be told of jobs that ended",
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", Uuid, primary_key=True, comment="stays the same however often it is sent"),
    Column("webhook_id", Uuid, ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
    Column(
        "job_id", Uuid, ForeignKey("jobs.id", ondelete="CASCADE"), comment="null: a ping, of no job"
    ),
    Column("event", Text, nullable=False),
    Column("body", Text, nullable=False, comment="JSON as it is sent and signed; no content"),
    Column(
        "attempts",
        Integer,
        nullable=False,
        server_default="0",
        comment="begun so far; fences what each of them writes",
    ),
    Column(
        "failures",
        Integer,
        nullable=False,
        server_default="0",
        comment="since it was written, or sent again by hand",
    ),
    Column("attempted_at", DateTime(timezone=True), comment="when the last attempt began"),
    Column("due_at", DateTime(timezone=True), nullable=False, server_default=_now),
    Column("delivered_at", DateTime(timezone=True)),
    Column("given_up_at", DateTime(timezone=True)),
    Column("last_status", Integer, comment="HTTP status of the last answer"),
    Column("last_error", Text, comment="why the last attempt failed"),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=_now),
    Index(
        "deliveries_due",
        "webhook_id",
        "due_at",
        postgresql_where=text("delivered_at IS NULL AND given_up_at IS NULL"),
    ),
    Index(
        "deliveries_pings",
        "webhook_id",
        postgresql_where=text("event = 'ping' AND delivered_at IS NULL AND given_up_at IS NULL"),
    ),
    Index("deliveries_given_up", "id", postgresql_where=text("given_up_at IS NOT NULL")),
    Index("deliveries_of_webhook", "webhook_id", "created_at"),
    Index("deliveries_of_job", "job_id"),
    comment="outbox of webhooks: written in the transaction that ends the job",
)

accesses = Table(
    "accesses",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False, server_default=_now),
    Column("tenant", Text),
    Column("key_id", Text, comment="who; null: keys were off, or this machine's command line"),
    Column("action", Text, nullable=False, comment="read, listened, erased, ..."),
    Column("job_id", Uuid, comment="no foreign key: it outlives the job"),
    Column("detail", Text, comment="format of a transcript, or id of a key; never content"),
    Index("accesses_job", "job_id", "id"),
    Index("accesses_at", "at"),
    comment="who read, heard or erased what, without content",
)
