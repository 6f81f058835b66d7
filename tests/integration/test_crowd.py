"""A small crowd at a real API process: nothing lost, and who waits disturbs nobody."""

from __future__ import annotations

from bench import crowd


def test_uploads_of_many_beside_many_who_wait_lose_nothing() -> None:
    # the ratio of P99 is the bench's to tell: so few uploads on a shared machine say nothing of it
    found = crowd.run(files=80, clients=8, idle=200)
    assert (found["accepted"], found["rows"], found["lost"]) == (112, 112, 0)
    assert (found["5xx"], found["not_202"], found["polls_failed"]) == (0, {}, {})
    assert found["idle_open"] == 200
