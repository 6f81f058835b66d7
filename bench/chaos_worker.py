"""One part of the house with faults that come from inside: python -m bench.chaos_worker PART --home

Patches this process, then runs the part's real command line in it. What is patched: the clock, if
it is to be off; how often errands are sent again (seconds instead of minutes, as the lease is short
too); storage, which is full while HOME/chaos/full exists; and, for the mutation checks, one of the
rules of the lease protocol, which the product itself has no switch for. Each answered claim is
written down in HOME/chaos, to be compared with what Redis leased.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SWEEP_S, LOST_AFTER_S, TIDY_S = 2.0, 4.0, 5.0


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("part", choices=("api", "errands", "survey", "transcribe"))
    asked.add_argument("--home", type=Path, required=True)
    asked.add_argument("--name", required=True, help="of the worker, in place of part@host")
    asked.add_argument("--without", choices=tuple(SABOTAGE), default=None)
    asked.add_argument("--clock-off", type=float, default=0.0, metavar="SECONDS")
    given = asked.parse_args()
    _set_clock(given.clock_off)  # before anybody imports `time.time` by name
    _write_claims_down(given.home / "chaos" / f"{given.name}.claims")
    _fill_storage(given.home / "chaos" / "full")
    if given.without:
        SABOTAGE[given.without]()
    if given.part == "errands":
        _sweep_soon()
    _run(given.part, given.name)


def _run(part: str, name: str) -> None:
    from pipeline.settings import read_settings
    from workers.command_lines import command_line

    module, *words = command_line(part, read_settings())[2:]
    sys.argv = [module, *(f"{name}@chaos" if word.endswith("@%h") else word for word in words)]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _set_clock(off_s: float) -> None:
    if off_s:
        true, true_ns = time.time, time.time_ns
        vars(time).update(
            time=lambda: true() + off_s, time_ns=lambda: true_ns() + int(off_s * 10**9)
        )


def _write_claims_down(path: Path) -> None:
    from pipeline.queue.scripts import Scripts

    run = Scripts.run
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def told(self: Scripts, script: str, names: Any, arguments: Any) -> Any:
        answer = run(self, script, names, arguments)
        if script == "claim" and answer[0] == "jobs":
            line = [f"{time.monotonic():.3f}", arguments[0], *answer[3::2]]
            os.write(file, (" ".join(line) + "\n").encode())
        return answer

    vars_of(Scripts, run=told)


def _fill_storage(flag: Path) -> None:
    import obstore

    put = obstore.put

    def full(store: Any, path: str, file: Any, *rest: Any, **options: Any) -> Any:
        if flag.exists():
            next(file, None)  # the disk took some of it
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return put(store, path, file, *rest, **options)

    vars(obstore)["put"] = full


def _sweep_soon() -> None:
    import workers.errands as errands

    vars(errands)["LOST_AFTER_S"] = LOST_AFTER_S
    for name, every_s in ((errands.SWEEP, SWEEP_S), (errands.TIDY, TIDY_S)):
        entry = errands.app.conf.beat_schedule[name]
        entry["schedule"], entry["options"] = every_s, {"expires": every_s}


# -- the mutations --------------------------------------------------------------------------


def _no_fence() -> None:
    """Writes and questions of workers ignore the attempt."""
    from sqlalchemy import bindparam, text
    from sqlalchemy.dialects.postgresql import JSONB

    from pipeline.store import jobs, partials, rows

    def move(c: Any, ids: Any, allowed: Any, values: Any, attempt: Any = None, **rest: Any) -> Any:
        return rows.move(c, ids, allowed, values, **rest)

    fence = "(id, attempt) IN (SELECT job_id, attempt FROM given)"
    blind = _without(partials._SAVE.text, fence, "id IN (SELECT job_id FROM given)")
    vars(jobs)["move"] = move
    vars(partials)["_SAVE"] = text(blind).bindparams(
        bindparam("rows", type_=JSONB), bindparam("fenced", partials._FENCED, expanding=True)
    )
    vars(jobs)["still_ours"] = lambda c, stage, held: set(held)
    vars(jobs)["taken_away"] = lambda c, held: set()


def _no_nonce() -> None:
    """A claim that comes twice is taken for two claims."""
    _mutate("claim", "if answer[1] == ARGV[1] then return answer[2] end", "")


def _no_reassert() -> None:
    """A lease that Redis forgot is lost to its owner."""
    _mutate("renew", "elseif not holder and", "elseif false and")


SABOTAGE: dict[str, Callable[[], None]] = {
    "fence": _no_fence,
    "nonce": _no_nonce,
    "reassert": _no_reassert,
}


def _mutate(script: str, rule: str, instead: str) -> None:
    from pipeline.queue import scripts

    source = scripts._source
    _without(source(script), rule, instead)  # fails here and now if the rule reads otherwise today

    def mutated(name: str) -> str:
        return _without(source(name), rule, instead) if name == script else source(name)

    vars(scripts)["_source"] = mutated


def _without(source: str, rule: str, instead: str) -> str:
    if len(re.findall(re.escape(rule), source)) != 1:
        raise SystemExit(f"chaos cannot find the rule it was to remove: {rule}")
    return source.replace(rule, instead)


def vars_of(owner: type, **attributes: Any) -> None:
    """Give a class other methods."""
    for name, value in attributes.items():
        setattr(owner, name, value)


if __name__ == "__main__":
    main()
