"""Secrets come by environment or by file, and are told to nobody."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pipeline.cli.doctor import examine
from pipeline.cli.show import shown_settings
from pipeline.errors import BadSetting
from pipeline.settings import BY_FILE, SECRETS, broker_tls, celery_broker_url, read_settings

VALUES = {
    "database_url": "postgresql://me:s3cret-word@db/d",
    "redis_url": "rediss://:s3cret-word@r/0",
    "flower_auth": "me:s3cret-word",
    "api_key": "fsk_s3cret-word",
}


def test_every_secret_and_every_url_with_a_password_has_a_value_here() -> None:
    assert set(VALUES) == set(BY_FILE)
    assert SECRETS <= BY_FILE


@pytest.mark.parametrize("name", sorted(VALUES))
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_secret_is_read_from_the_file_that_is_named(name: str, end: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes((VALUES[name] + end).encode())
    variable = f"FAIRSCRIBE_{name.upper()}"
    read = read_settings({f"{variable}_FILE": str(tmp_path / "secret"), variable: ""})
    assert getattr(read, name) == VALUES[name]
    assert "s3cret" not in str([row.value for row in shown_settings(read)])


def test_only_one_newline_is_cut(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("redis://h/0 \n\n")
    read = read_settings({"FAIRSCRIBE_REDIS_URL_FILE": str(tmp_path / "secret")})
    assert read.redis_url == "redis://h/0 \n"


def test_a_value_and_a_file_are_one_too_many(tmp_path: Path) -> None:
    given = {"FAIRSCRIBE_API_KEY": "s3cret", "FAIRSCRIBE_API_KEY_FILE": str(tmp_path)}
    with pytest.raises(BadSetting, match="FAIRSCRIBE_API_KEY_FILE are both set") as refused:
        read_settings(given)
    assert "s3cret" not in refused.value.message


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file"), (b"", "empty"), (b"\n", "empty"), (b"s3cret\xff", "not UTF-8")],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(
    content: bytes | None, why: str, tmp_path: Path
) -> None:
    place = tmp_path / "secret"
    if content is not None:
        place.write_bytes(content)
    with pytest.raises(BadSetting, match=f"FAIRSCRIBE_API_KEY_FILE=.*{why}") as refused:
        read_settings({"FAIRSCRIBE_API_KEY_FILE": str(place)})
    assert "s3cret" not in refused.value.message
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "recording"])
def test_a_file_that_may_never_end_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    place = Path("/dev/zero") if kind == "device" else tmp_path / "odd"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "recording":
        place.write_bytes(b"x" * 70_000)
    with pytest.raises(BadSetting, match=r"FAIRSCRIBE_API_KEY_FILE=.*: (it is|Is a directory)"):
        read_settings({"FAIRSCRIBE_API_KEY_FILE": str(place)})


@pytest.mark.parametrize("value", ["1e300", "1e400", "nan", "-1", "٣"])
@pytest.mark.parametrize(
    "name",
    [
        *("KEEP_AUDIO_DAYS", "KEEP_PACKED_DAYS", "KEEP_TRANSCRIPTS_DAYS", "KEEP_JOBS_DAYS"),
        *("KEEP_ACCESSES_DAYS", "WINDOW_LIMIT_S", "ENGINE_STALL_S", "HEALTH_CHECK_S"),
        *("URL_TIMEOUT_S", "WEBHOOK_TIMEOUT_S", "UPLOAD_IDLE_S", "RATE_PER_S", "RATE_BURST"),
    ],
)
def test_times_that_nobody_can_wait_or_look_back_are_refused(name: str, value: str) -> None:
    with pytest.raises(BadSetting, match=f"FAIRSCRIBE_{name}="):
        read_settings({f"FAIRSCRIBE_{name}": value})


def test_what_is_no_secret_has_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="FAIRSCRIBE_MODEL_FILE is not a setting"):
        read_settings({"FAIRSCRIBE_MODEL_FILE": str(tmp_path)})


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:s3cret@db/d",
        "me:s3cret@db",
        "http://me:s3cret@[db",
        "http:///run/s?db=0&password=s3cret",
    ],
)
@pytest.mark.parametrize("name", ["DATABASE_URL", "REDIS_URL"])
def test_a_refused_url_is_told_without_its_password(name: str, url: str) -> None:
    with pytest.raises(BadSetting, match=f"FAIRSCRIBE_{name}=") as refused:
        read_settings({f"FAIRSCRIBE_{name}": url})
    assert "s3cret" not in refused.value.message


def test_doctor_tells_no_secret_that_came_by_a_file(tmp_path: Path) -> None:
    given = {"FAIRSCRIBE_HOME": str(tmp_path / "home")}
    urls = {
        "database_url": "postgresql://me:s3cret-word@127.0.0.1:1/d",
        "redis_url": "redis://:s3cret-word@127.0.0.1:1/0",
    }
    for name, value in {**VALUES, **urls}.items():
        (tmp_path / name).write_text(value)
        given[f"FAIRSCRIBE_{name.upper()}_FILE"] = str(tmp_path / name)

    def check(here: object) -> None:
        raise RuntimeError(f"{VALUES['api_key']} {VALUES['flower_auth']} {urls}")

    told = json.dumps([(v.said, v.cure) for v in examine(given, [check])])  # type: ignore[list-item]
    assert "could not be checked" in told
    assert "s3cret" not in told


@pytest.mark.parametrize(
    ("ours", "celerys"),
    [
        ("unix:///v.sock?db=2&password=p%2Fw", "redis+socket://:p%2Fw@/v.sock?virtual_host=2"),
        ("unix://:pw@/v.sock?db=0", "redis+socket://:pw@/v.sock?virtual_host=0"),
        ("rediss://:pw@h:6380/0", "rediss://:pw@h:6380/0?ssl_cert_reqs=required"),
        ("rediss://h/0?ssl_cert_reqs=none", "rediss://h/0?ssl_cert_reqs=none"),
    ],
)
def test_celery_is_told_the_same_redis(ours: str, celerys: str) -> None:
    assert celery_broker_url(ours) == celerys
    assert (broker_tls(ours) is not None) == ours.startswith("rediss")
