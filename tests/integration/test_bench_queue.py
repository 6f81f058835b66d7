"""`fairscribe bench queue` tells what it promises, from a real server."""

from __future__ import annotations

import random

import pytest

import bench.queue
from pipeline.queue.redis_queue import connect


def test_the_report_has_exactly_the_promised_figures_and_the_queue_is_as_long_as_asked(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.queue, "CALLS", 32)
    monkeypatch.setattr(bench.queue, "WORST", 1)
    client = connect(environ["FAIRSCRIBE_REDIS_URL"])
    report = bench.queue.measured(client, 700, random.Random(1))
    assert list(report) == ["waiting", "server_us", "bytes_per_job", "max_block_ms"]
    assert list(report["server_us"]) == ["enqueue", "claim", "claim16", "complete"]
    assert report["waiting"] == client.zcard("{fairscribe:transcribe}:ready") == 700
    assert client.zcard("{fairscribe:transcribe}:lease") == 0
    assert all(us > 0 for us in report["server_us"].values())
    assert 50 < report["bytes_per_job"] < 400
    assert report["max_block_ms"] > 0
