"""Who read, heard or erased what."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from pipeline.caller import ANYONE, Caller, Scope
from pipeline.steps.accept import new_job_id
from pipeline.store import accesses
from pipeline.store.accesses import Action
from pipeline.store.session import transaction

ANNA = Caller("k1", "acme", frozenset({Scope.READ}))


def test_what_somebody_did_is_found_by_job_by_key_and_page_by_page(store: Engine) -> None:
    one, two = new_job_id(), new_job_id()
    with transaction(store) as c:
        accesses.record(c, ANNA, Action.READ, one, "srt")
        accesses.record(c, ANYONE, Action.LISTENED, one)
        accesses.record_all(c, ANYONE, Action.ERASED, [one, two])
        accesses.record(c, ANYONE, Action.KEY_REVOKED, detail="k1")
    with transaction(store) as c:
        of_one = accesses.found(c, job_id=one)
        of_anna = accesses.found(c, key_id="k1")
        newest = accesses.found(c, limit=2)
        older = accesses.found(c, after=newest[-1].id)
    assert [a.action for a in of_one] == ["erased", "listened", "read"]
    assert (of_one[-1].tenant, of_one[-1].key_id, of_one[-1].detail) == ("acme", "k1", "srt")
    assert [a.action for a in of_anna] == ["key_revoked", "read"]
    assert [a.id for a in newest + older] == sorted((a.id for a in newest + older), reverse=True)
    assert len(newest + older) == 5


def _fails_after_recording(store: Engine) -> None:
    with transaction(store) as c:
        accesses.record(c, ANNA, Action.READ, new_job_id())
        raise ZeroDivisionError


def test_nothing_is_written_down_of_what_was_not_done(store: Engine) -> None:
    with pytest.raises(ZeroDivisionError):
        _fails_after_recording(store)
    with transaction(store) as c:
        accesses.record_all(c, ANNA, Action.ERASED, [])
        assert accesses.found(c) == []
