"""`fairscribe key`, `audit` and `audio`; and the command line against an API that wants keys."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.cli.checks import service
from pipeline.cli.checks.verdict import look_around
from pipeline.errors import BadSetting
from pipeline.parts import Parts
from pipeline.settings import read_settings
from pipeline.store import keys, webhooks
from pipeline.store.session import transaction
from tests import driven
from tests.integration.conftest import Run
from tests.keyed import id_of, new_key
from tests.listening import listening

HOOK = "0195cf5e-0a53-7cc1-b5a5-6f2ed8e8d6f2"


@pytest.fixture
def keyed(alone: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """The command line against an API that wants keys."""
    monkeypatch.setenv("FAIRSCRIBE_KEYS", "on")
    with listening() as url:
        monkeypatch.setenv("FAIRSCRIBE_API_URL", url)
        yield alone


def test_the_first_key_is_made_before_anybody_may_call_and_opens_the_door(
    keyed: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shut = keyed("list")
    assert (shut.code, "set FAIRSCRIBE_API_KEY" in shut.err) == (2, True)
    before = service.api(look_around(read_settings(), os.environ))
    assert (before.ok, "key_missing" in before.said) == (False, True)
    made = keyed("key", "add", "nightly", "--tenant", "acme", "--expires", "90d")
    key = made.out.strip()
    assert made.code == 0
    assert keys.FORM.fullmatch(key)
    assert key not in made.err
    monkeypatch.setenv("FAIRSCRIBE_API_KEY", key)
    assert service.api(look_around(read_settings(), os.environ)).ok
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    assert keyed("submit", str(tmp_path / "a.wav"), "--batch-id", "b").code == 0
    assert [job["batch_id"] for job in keyed("list", "--json").json["jobs"]] == ["b"]
    assert keyed("policy").err.strip() == (
        "The API key does not allow this: it needs the scope `operate`."
    )
    shown = keyed("settings")
    assert key.split("_", 2)[2] not in shown.out, "it is a secret"
    monkeypatch.setenv("FAIRSCRIBE_API_KEY", key[:-2] + "AA")
    assert "not known here" in keyed("list").err
    wrong = service.api(look_around(read_settings(), os.environ))
    assert (wrong.ok, "key_unknown" in wrong.said) == (False, True)
    assert "`fairscribe key list`" in str(wrong.cure)


def test_keys_are_listed_without_their_secrets_and_revoked_by_id(alone: Run) -> None:
    made = alone(
        *("key", "add", "desk", "--scope", "operate", "--scope", "read", "--rate", "5"),
        *("--burst", "9", "--share", "2.5", "--json"),
    ).json
    assert (made["tenant"], made["scopes"], made["state"]) == (
        "main",
        ["operate", "read"],
        "active",
    )
    (listed,) = alone("key", "list", "--json").json["keys"]
    assert {**listed, "key": made["key"]} == made
    assert (listed["rate_per_s"], listed["rate_burst"], listed["last_used_at"]) == (5.0, 9, None)
    assert alone("key", "list", "--tenant", "other", "--json").json["keys"] == []
    told = alone("key", "list").out
    assert made["id"] in told
    assert made["key"].split("_", 2)[2] not in told
    first = alone("key", "revoke", made["id"], "--json").json
    assert first["state"] == "revoked"
    assert alone("key", "revoke", made["id"], "--json").json == first, "it stays as it ended"
    assert alone("key", "revoke", "nosuchkey").code == 1


def test_a_tenant_gets_its_share(alone: Run, parts: Parts) -> None:
    from sqlalchemy import text

    def shares() -> dict[str, float | None]:
        with transaction(parts.store) as c:
            rows = c.execute(text("SELECT name, share FROM tenants"))
            return {row.name: row.share for row in rows}

    alone("key", "add", "a", "--tenant", "acme")
    assert shares() == {"acme": None}
    assert alone("key", "share", "acme", "2.5").out == "acme  2.5\n"
    alone("key", "share", "new", "1")
    assert shares() == {"acme": 2.5, "new": 1.0}
    assert alone("key", "share", "acme", "0", "--json").json == {"tenant": "acme", "share": None}
    assert shares()["acme"] is None


def test_jobs_from_before_there_were_keys_are_given_to_a_tenant(
    keyed: Run, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.cli.key_commands.PAGE", 2)
    old = [driven.received(parts, f"{n}.wav") for n in range(5)]
    with transaction(parts.store) as c:
        webhooks.add(c, HOOK, None, "https://crm.example/hook", "whsec_", ["job.completed"])
    monkeypatch.setenv("FAIRSCRIBE_API_KEY", new_key(parts, "acme"))
    assert keyed("list", "--json").json["jobs"] == []
    assert keyed("webhook", "list", "--json").json["webhooks"] == []
    assert keyed("key", "adopt", "acme").out == "acme  5 jobs, 1 webhooks\n"
    assert [one["id"] for one in keyed("webhook", "list", "--json").json["webhooks"]] == [HOOK]
    assert [job["id"] for job in keyed("list", "--json").json["jobs"]] == old
    assert keyed("key", "adopt", "rival", "--json").json["adopted"] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("add", "a", "--tenant", "two words"),
        ("add", "a", "--tenant", "../x"),
        ("add", "a", "--tenant", ""),
        ("add", ""),
        ("add", "two\nlines"),
        ("add", "a", "--expires", "soon"),
        ("add", "a", "--expires", "0d"),
        ("add", "a", "--expires", "999999d"),
        ("add", "a", "--scope", "everything"),
        ("add", "a", "--burst", "0"),
        ("share", "a b", "1"),
    ],
)
def test_what_is_no_key_and_no_tenant_is_refused(alone: Run, words: tuple[str, ...]) -> None:
    ran = alone("key", *words)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err
    assert alone("key", "list", "--json").json["keys"] == []


def test_without_a_postgres_that_is_known_a_sentence_says_so(
    alone: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRSCRIBE_DATABASE_URL", "postgresql://u:secret@127.0.0.1:1/none")
    away = alone("key", "list")
    assert away.code == 2
    assert "secret" not in away.err
    monkeypatch.delenv("FAIRSCRIBE_DATABASE_URL")
    assert "No Postgres is known" in alone("key", "list").err


def test_a_recording_is_fetched_whole_or_not_at_all_and_the_audit_tells(
    run: Run, parts: Parts, tmp_path: Path
) -> None:
    job_id = driven.received(parts, "call.wav")
    to = tmp_path / "call.wav"
    assert run("audio", job_id, "-o", str(to), "--json").json["size_bytes"] == 4
    assert to.read_bytes() == b"RIFF"
    to.unlink()
    assert run("audio", driven.nobody(), "-o", str(to)).code == 1
    assert list(tmp_path.glob("call*")) == []
    assert run("audio", job_id, "-o", str(tmp_path / "no" / "where")).code == 2
    driven.completed(parts, job_id)
    run("get", job_id)
    made = run("key", "add", "a", "--json").json
    run("key", "revoke", made["id"])
    seen = run("audit", "--json").json["accesses"]
    actions = [one["action"] for one in seen]
    assert actions == ["key_revoked", "key_added", "read", "listened"]
    of_key = run("audit", "--key", made["id"], "--since", "1h", "--json").json["accesses"]
    assert [one["action"] for one in of_key] == ["key_revoked", "key_added"]
    assert run("audit", "--job", job_id, "--limit", "1", "--json").json["next_cursor"]
    assert job_id in run("audit").out
    assert run("audit", "--job", "nonsense").code == 2


@pytest.mark.parametrize(
    ("host", "keys_are", "needed"),
    [
        ("127.0.0.1", "auto", False),
        ("::1", "auto", False),
        ("localhost", "auto", False),
        ("0.0.0.0", "auto", True),
        ("::", "auto", True),
        ("10.0.0.5", "auto", True),
        ("here.example.com", "auto", True),
        ("127.0.0.1", "on", True),
        ("127.0.0.1", "off", False),
    ],
)
def test_keys_are_needed_wherever_somebody_else_could_knock(
    host: str, keys_are: str, needed: bool
) -> None:
    given = {"FAIRSCRIBE_API_HOST": host, "FAIRSCRIBE_KEYS": keys_are}
    assert read_settings(given).needs_keys is needed


def test_beyond_this_machine_keys_cannot_be_off() -> None:
    with pytest.raises(BadSetting, match="FAIRSCRIBE_KEYS=off"):
        read_settings({"FAIRSCRIBE_API_HOST": "0.0.0.0", "FAIRSCRIBE_KEYS": "off"})
    with pytest.raises(BadSetting, match=r"FAIRSCRIBE_API_KEY=\*\*\*"):
        read_settings({"FAIRSCRIBE_API_KEY": "two\nlines"})


def test_the_id_of_a_key_is_no_part_of_its_secret(alone: Run) -> None:
    key = alone("key", "add", "a", "--json").json
    assert id_of(key["key"]) == key["id"]
    assert key["id"] not in key["key"].split("_", 2)[2]
