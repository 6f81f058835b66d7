"""Runs the Lua scripts of `lua/`: none keeps the server from others for long.

A script has the server for itself while it runs, so lists go in parts. What is done of a list when
Redis goes away stays done: every script may be sent again with the whole list.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any, cast

import redis

from pipeline.queue.outage import redis_errors
from pipeline.scheduling.policies import Policy, pairs
from pipeline.scheduling.work import bucket_windows

SCRIPTS = (
    *("enqueue", "claim", "renew", "complete", "release", "withdraw"),
    *("reap", "seed", "shorten", "retake"),
    "allow",
)

CHUNK = 64
"""Jobs a call of a script takes at most: about a millisecond (`fairscribe bench queue`)."""


class Scripts:
    """The scripts on one server. Safe to use from several threads."""

    def __init__(self, client: redis.Redis) -> None:
        self._scripts = {name: client.register_script(_source(name)) for name in SCRIPTS}

    def hashes(self) -> dict[str, str]:
        """SHA-1 of each script: how Redis names it."""
        return {name: script.sha for name, script in self._scripts.items()}

    def run(self, script: str, names: Sequence[str], arguments: Sequence[Any]) -> Any:
        """One call. Raises `PartDown` when Redis does not answer."""
        call = cast(Callable[..., Any], self._scripts[script])
        with redis_errors():
            return call(keys=list(names), args=list(arguments))

    def run_in_parts(
        self,
        script: str,
        names: Sequence[str],
        jobs: Sequence[Sequence[Any]],
        before: Sequence[Any] = (),
    ) -> list[Any]:
        """What `script` answers for each part of `jobs`; no job is no call.

        `jobs`: the arguments of each job. `before`: arguments that go before them in every call.
        """
        return [
            self.run(script, names, [*before, *itertools.chain.from_iterable(part)])
            for part in _parts(jobs)
        ]

    def count(
        self,
        script: str,
        names: Sequence[str],
        jobs: Sequence[Sequence[Any]],
        before: Sequence[Any] = (),
    ) -> int:
        """The same for a script that answers for how many jobs it did something."""
        return sum(self.run_in_parts(script, names, jobs, before))


def _parts(jobs: Sequence[Sequence[Any]]) -> Iterator[Sequence[Sequence[Any]]]:
    for first in range(0, len(jobs), CHUNK):
        yield jobs[first : first + CHUNK]


@lru_cache(maxsize=8)
def packed_table(policy: Policy) -> bytes:
    """The table claim.lua reads: u, v and windows of each bucket as little-endian doubles.

    One argument instead of 900: the server neither parses them nor makes a string of each. Doubles
    go over as they are, so Lua compares the very numbers Python would.
    """
    rows = enumerate(pairs(policy))
    return b"".join(struct.pack("<3d", u, v, bucket_windows(bucket)) for bucket, (u, v) in rows)


def _source(script: str) -> str:
    return resources.files("pipeline.queue").joinpath("lua", f"{script}.lua").read_text("utf-8")
