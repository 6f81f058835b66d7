"""What is written up in Redis for people: the speed of workers, the ratios of who waits."""

from __future__ import annotations

from bench.eta import put_surveyed
from pipeline.job import SURVEY, TRANSCRIBE, State
from pipeline.parts import Parts
from pipeline.queue import keys
from pipeline.queue.redis_queue import connect
from pipeline.steps.ratio import write_ratios
from tests.lines import eventually, pulling, states
from tests.standing import waiting
from workers.echo_engine import EchoEngine


def test_a_puller_says_how_fast_it_is_and_takes_it_back_when_it_leaves(parts: Parts) -> None:
    board = parts.queues[TRANSCRIBE.name].board
    with pulling(parts, EchoEngine(slots=2, fixed_s=0.1, per_second_s=0.0), name="t@x") as puller:
        eventually(lambda: [w.worker for w in board.speeds()] == ["t@x"])
        for _ in range(6):
            put_surveyed(parts, 20.0)
        (worker,) = eventually(lambda: [w for w in board.speeds() if w.speed])
        assert worker.slots == 2
        assert puller.facts()["speed"] > 0
        eventually(lambda: states(parts) == {State.COMPLETED: 6})
    assert board.speeds() == []


def test_ratios_are_written_up_in_one_go_and_vanish_when_beat_stops(parts: Parts) -> None:
    queue, redis = parts.queues[TRANSCRIBE.name], connect(parts.settings.redis_url or "")
    ids = waiting(parts, 3)
    write_ratios(parts.store, parts.queues, parts.settings.start_policy)
    found = queue.board.ratios()
    assert found is not None
    assert found.of == 3
    assert found.highest >= found.median >= 1.0
    assert set(redis.zrange(keys.ratio(queue.name), 0, -1)) == set(ids)
    assert parts.queues[SURVEY.name].board.ratios() is None  # nobody waits there
    for key in (keys.ratio(queue.name), keys.ratio_as_of(queue.name)):
        assert 0 < redis.pttl(key) <= 30_000
    queue.withdraw(ids)
    write_ratios(parts.store, parts.queues, parts.settings.start_policy)
    assert queue.board.ratios() is None
