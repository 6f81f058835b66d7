"""Every setting: its name, default, unit and meaning."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from pipeline.scheduling.adaptive import AUTO_START, Mode, is_auto
from pipeline.scheduling.policies import Policy, parse_policy
from pipeline.settings.hosts import is_loopback

DEFAULT_POLICY = "hrrn(2.5,300)"
"""Why this one: docs/decisions.md, entry 32."""

SECRETS = frozenset({"flower_auth", "api_key"})
"""Settings whose value is shown to nobody."""

BY_FILE = SECRETS | {"database_url", "redis_url"}
"""Settings that may be read from a file: `FAIRSCRIBE_<NAME>_FILE` names it."""


LONGEST_DAYS = 1_000_000.0
"""Beyond it Postgres knows no date so long ago."""

LONGEST_S = 1_000_000.0
"""Twelve days. Beyond some centuries the system takes no time to wait."""


def default_home() -> Path:
    """Where state lives: a system folder for root, the user's own data folder otherwise."""
    if os.geteuid() == 0:
        return Path("/var/lib/fairscribe")
    share = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(share) / "fairscribe"


class Settings(BaseModel):
    """One frozen object. Units are in the names: `_s` seconds, `_mb` megabytes, `_h` hours."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    home: Path = Field(
        default_factory=default_home,
        description="State folder: servers' data, recordings, logs, models (unit: path; "
        "default: /var/lib/fairscribe for root, ~/.local/share/fairscribe otherwise)",
    )
    database_url: str | None = Field(
        None,
        description="Postgres to use, postgresql://...; unset: `up` starts its own (unit: URL)",
    )
    redis_url: str | None = Field(
        None,
        description="Redis to use, redis://, rediss:// or unix://; unset: `up` starts its own "
        "(unit: URL)",
    )
    api_host: str = Field("127.0.0.1", description="Address the API listens on (unit: host)")
    api_port: int = Field(
        8000, ge=0, le=65535, description="Port of the API; 0 takes a free one (unit: port)"
    )
    api_url: str | None = Field(
        None,
        description="Where the command line finds the API; unset: the one `up` started in home "
        "(unit: URL)",
    )
    keys: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Whether callers need an API key; auto: only where the API listens beyond "
        "this machine, and there it cannot be off (unit: name)",
    )
    api_key: str | None = Field(None, description="API key the command line sends (unit: text)")
    rate_per_s: float = Field(
        100.0,
        ge=0,
        le=1e6,
        description="Requests a second of one API key; 0: no limit (unit: requests a second)",
    )
    rate_burst: int = Field(
        500,
        ge=1,
        le=1_000_000,
        description="Requests of one API key at once before the rate counts (unit: requests)",
    )
    max_backlog_h: float = Field(
        0.0,
        ge=0,
        description="Audio that may wait before uploads are refused with 503 and Retry-After; "
        "0: no limit (unit: hours of audio)",
    )
    flower_host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address Flower listens on; beyond this machine it needs a password "
        "(unit: host)",
    )
    flower_port: int = Field(
        5555, ge=0, le=65535, description="Port of Flower; 0 takes a free one (unit: port)"
    )
    flower_url: str | None = Field(
        None,
        description="Where people reach Flower, for the link from a job to its task; unset: the "
        "one `up` started (unit: URL)",
    )
    flower_auth: str | None = Field(
        None,
        # Flower answers nobody any more when there are others than ASCII in it
        pattern="^[ -9;-~]+:[ -~]+$",
        description="user:password Flower asks for, in ASCII; needed where it listens beyond this "
        "machine (unit: text)",
    )
    flower_control: bool = Field(
        False,
        description="Let Flower stop workers and cancel jobs, not only show them "
        "(unit: true or false)",
    )
    flower_max_tasks: int = Field(
        10_000, ge=100, le=10_000_000, description="Tasks Flower remembers (unit: tasks)"
    )
    engine: Literal["vllm", "echo"] = Field(
        "vllm",
        description="Speech engine; `echo` hears nothing and only takes time, for tests of load "
        "(unit: name)",
    )
    model: str = Field(
        "tiny.en",
        min_length=1,
        description="`tiny.en` (English) or `base` (99 languages), packaged weights; a folder; or "
        "a Hugging Face id such as openai/whisper-large-v3 (unit: name)",
    )
    language: str = Field(
        "en",
        pattern="^(auto|[a-z]{2,3})$",
        description="Language of a recording that names none; `auto`: heard out, once a channel "
        "(unit: ISO 639-1 code)",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Number format of the engine; auto suits the device (unit: name)"
    )
    slots: int = Field(
        0,
        ge=0,
        le=1024,
        description="Windows in flight in one engine; 0: 16 on a CPU, 32 on a GPU (unit: windows)",
    )
    engine_threads: int = Field(
        0, ge=0, description="CPU threads of the engine; 0: one a core (unit: threads)"
    )
    kv_cache_gib: float = Field(
        1.0, gt=0, description="Memory for the engine's attention cache on a CPU (unit: GiB)"
    )
    gpu_memory_utilization: float = Field(
        0.9, gt=0, le=1, description="Share of a GPU's memory the engine may take (unit: share)"
    )
    engine_stall_s: float = Field(
        120.0,
        gt=0,
        le=LONGEST_S,
        description="A speech engine that ends no window for this long is started anew "
        "(unit: seconds)",
    )
    window_limit_s: float = Field(
        120.0,
        gt=0,
        le=LONGEST_S,
        description="A window the engine has not answered for this long is given up and heard "
        "again alone (unit: seconds)",
    )
    health_check_s: float = Field(
        60.0,
        ge=0,
        le=LONGEST_S,
        description="A transcribe worker with nothing to do hears a known second of English this "
        "often, as it does at each start; 0: never, for a model that knows no English "
        "(unit: seconds)",
    )
    echo_fixed_s: float = Field(
        0.05, ge=0, description="Echo engine: time a window takes at least (unit: seconds)"
    )
    echo_per_second_s: float = Field(
        0.01, ge=0, description="Echo engine: more time a second of speech (unit: seconds)"
    )
    policy: str = Field(
        DEFAULT_POLICY,
        description="Order of work until changed at run time: fcfs, sjf, hrrn(g), hrrn(g,K), "
        "aged(beta), or auto, which moves g with the backlog (unit: policy)",
    )
    max_wait_s: float = Field(
        0.0,
        ge=0,
        le=31_622_400,
        description="Recordings that waited this long get one in eleven windows that start; 0: "
        "rank alone decides (unit: seconds)",
    )
    lease_s: float = Field(
        15.0,
        ge=0.5,
        le=3600,
        description="A worker that is silent this long loses its jobs to others (unit: seconds)",
    )
    renew_s: float = Field(
        5.0, gt=0, description="How often a worker renews its leases (unit: seconds)"
    )
    tick_s: float = Field(
        0.04, gt=0, le=5, description="How often a worker with free slots asks (unit: seconds)"
    )
    drain_s: float = Field(
        30.0,
        gt=0,
        le=3600,
        description="Time windows in flight get to end at shutdown (unit: seconds)",
    )
    max_crashes: int = Field(
        3,
        ge=1,
        description="Engine deaths a recording may cause, alone, before it fails (unit: times)",
    )
    survey_slots: int = Field(
        2, ge=1, le=64, description="Recordings surveyed at once by one worker (unit: recordings)"
    )
    survey_ahead_h: float = Field(
        20.0,
        gt=0,
        description="Speech surveyed ahead of the engine; beyond it only recordings that go "
        "first are surveyed (unit: hours of speech)",
    )
    log_level: Literal["debug", "info", "warning"] = Field(
        "info",
        description="Least important lines a part writes to its log; `debug`: also one for each "
        "window heard, with its times (unit: name)",
    )
    max_upload_mb: float = Field(
        2048.0, gt=0, le=1e6, description="Largest file accepted (unit: megabytes of 10^6 bytes)"
    )
    max_duration_h: float = Field(
        12.0, gt=0, le=100, description="Longest recording accepted (unit: hours)"
    )
    max_files: int = Field(
        10_000, ge=1, le=1_000_000, description="Files in one request (unit: files)"
    )
    upload_idle_s: float = Field(
        30.0,
        gt=0,
        le=3600,
        description="An upload that brings nothing for this long is given up (unit: seconds)",
    )
    keep_audio_days: float | None = Field(
        None,
        ge=0,
        le=LONGEST_DAYS,
        description="Recordings are erased this long after their job ended; unset: "
        "never (unit: days)",
    )
    keep_packed_days: float = Field(
        0.0,
        ge=0,
        le=LONGEST_DAYS,
        description="Packed speech is erased this long after its job ended (unit: days)",
    )
    keep_transcripts_days: float | None = Field(
        None,
        ge=0,
        le=LONGEST_DAYS,
        description="Transcripts are erased this long after their job ended; unset: "
        "never (unit: days)",
    )
    keep_jobs_days: float | None = Field(
        None,
        ge=0,
        le=LONGEST_DAYS,
        description="All that is known of a job is erased this long after it ended; "
        "unset: never (unit: days)",
    )
    keep_accesses_days: float = Field(
        400.0,
        gt=0,
        le=LONGEST_DAYS,
        description="How long is remembered who read, heard or erased what (unit: days)",
    )
    webhook_timeout_s: float = Field(
        10.0, gt=0, le=60, description="Time a webhook has to answer (unit: seconds)"
    )
    webhook_private: bool = Field(
        False,
        description="Send webhooks to private and local addresses too: only where every caller "
        "is trusted (unit: true or false)",
    )
    url_timeout_s: float = Field(
        600.0,
        gt=0,
        le=LONGEST_S,
        description="Time fetching a recording by its URL may take (unit: seconds)",
    )
    url_private: bool = Field(
        False,
        description="Fetch from private and local addresses too: only where every caller is "
        "trusted (unit: true or false)",
    )

    @model_validator(mode="after")
    def _renewed_in_time(self) -> Settings:
        if self.renew_s * 2 > self.lease_s:
            raise ValueError(
                f"FAIRSCRIBE_RENEW_S ({self.renew_s:g}) must be at most half of FAIRSCRIBE_LEASE_S "
                f"({self.lease_s:g}), or leases run out in between"
            )
        return self

    @model_validator(mode="after")
    def _keys_beyond_this_machine(self) -> Settings:
        if self.keys == "off" and not is_loopback(self.api_host):
            raise ValueError(
                f"FAIRSCRIBE_KEYS=off: the API listens beyond this machine (FAIRSCRIBE_API_HOST="
                f"{self.api_host}), where whoever reaches it would read every call: leave it unset"
            )
        return self

    @field_validator("api_key")
    @classmethod
    def _fits_a_header(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[\x21-\x7e]{1,200}", value):
            raise ValueError("a key as `fairscribe key add` printed it")
        return value

    @field_validator("policy")
    @classmethod
    def _known_policy(cls, value: str) -> str:
        if not is_auto(value):
            parse_policy(value)
        return value

    @field_validator("database_url", "redis_url", "api_url", "flower_url")
    @classmethod
    def _has_scheme(cls, value: str | None, info: Any) -> str | None:
        schemes = {
            "database_url": ("postgresql", "postgres", "postgresql+psycopg"),
            "redis_url": ("redis", "rediss", "unix"),
            "api_url": ("http", "https"),
            "flower_url": ("http", "https"),
        }[info.field_name]
        if value is not None and urlsplit(value).scheme not in schemes:
            raise ValueError(f"a URL that begins with {', '.join(schemes)}")
        return value

    @property
    def start_policy(self) -> Policy:
        """The policy in force until someone changes it, or `auto` moves it."""
        return AUTO_START if is_auto(self.policy) else parse_policy(self.policy)

    @property
    def start_mode(self) -> Mode:
        """Who decides until someone does: the setting, or the backlog."""
        return Mode.AUTO if is_auto(self.policy) else Mode.FIXED

    @property
    def needs_keys(self) -> bool:
        """Whether callers of the API need a key."""
        return self.keys == "on" or (self.keys == "auto" and not is_loopback(self.api_host))

    @property
    def max_upload_bytes(self) -> int:
        """Bytes of the largest file accepted."""
        return int(self.max_upload_mb * 1_000_000)
