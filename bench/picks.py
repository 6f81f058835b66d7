"""Was a line of work served as the rule demands? A real worker's picks, judged and compared.

A pick is a window given a slot. A worker that logs at `debug` writes one line for each window:
which job's it was, the turn in which it got its slot, when the engine began it and when it was
heard. Turns count picks as they were decided; windows given in one moment may begin a few
milliseconds apart in another order, since each is first read from storage.

Two questions are asked of a run. *Compared*: is the order of turns, job for job, the simulator's?
*Judged*: given what really had arrived and been heard at each turn, was that job first by the rule?
The second holds for arrivals that race with a claim too, and does not carry one difference on to
all later turns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.scheduling.dispatch import pick
from pipeline.scheduling.policies import Policy, Waiting, pairs
from pipeline.scheduling.work import bucket_of

RACE_S = 0.1
"""A decision may rest on what was known this long before: a claim looks at Redis, is granted by
Postgres, and its plan is read before the slot is given."""


@dataclass(frozen=True)
class Begun:
    """A window that was heard. Times are epoch seconds."""

    job_id: str
    unit: int
    turn: int
    given_s: float
    """It was decided that this one is next."""
    began_s: float
    """The engine began to hear it."""
    ended_s: float


@dataclass(frozen=True)
class Known:
    """A job as the rule sees it."""

    job_id: str
    arrival_ms: int
    """As ranks count it."""
    seen_s: float
    """When it could first be claimed, epoch seconds."""
    works: tuple[float, ...]
    """Predicted work of each window, reference slot seconds."""
    job_s: float
    """Predicted work besides."""


@dataclass(frozen=True)
class Judged:
    """How many turns went to whom the rule demands."""

    right: int
    """First by the rule at that very moment."""
    raced: int
    """First by the rule at a moment at most RACE_S before."""
    wrong: tuple[int, ...]
    """Numbers of the other turns, from 0."""


def read_windows(lines: Iterable[str]) -> list[Begun]:
    """Windows heard, in order of their turns, from a worker's log; other lines are passed over."""
    found = []
    for line in lines:
        if '"window_heard"' not in line:
            continue
        told = json.loads(line[line.index("{") :])  # Celery writes time and process before it
        fields = ("job_id", "unit", "turn", "given_s", "began_s", "ended_s")
        found.append(Begun(*(told[name] for name in fields)))
    return sorted(found, key=lambda window: window.turn)


def equal_turns(real: Sequence[str], simulated: Sequence[str]) -> int:
    """Turns that went to the same job in both."""
    return sum(a == b for a, b in zip(real, simulated, strict=True))


def judge(windows: Sequence[Begun], jobs: Mapping[str, Known], policy: Policy) -> Judged:
    """Judge every turn of a run of one worker. `windows` are all of `jobs`, in order of turns."""
    turns = _Turns(windows, jobs, policy)
    verdicts = [turns.verdict(number) for number in range(len(windows))]
    wrong = tuple(n for n, verdict in enumerate(verdicts) if verdict == "wrong")
    return Judged(verdicts.count("right"), verdicts.count("raced"), wrong)


class _Turns:
    """The state of a line at each turn, as it really was."""

    def __init__(self, windows: Sequence[Begun], jobs: Mapping[str, Known], policy: Policy) -> None:
        self._windows, self._jobs, self._table = windows, jobs, pairs(policy)
        self._changes = sorted([job.seen_s for job in jobs.values()] + [w.ended_s for w in windows])

    def verdict(self, number: int) -> str:
        turn = self._windows[number]
        left: dict[str, int] = {job_id: len(job.works) for job_id, job in self._jobs.items()}
        for earlier in self._windows[:number]:
            left[earlier.job_id] -= 1
        waiting = [job for job_id, job in self._jobs.items() if left[job_id]]
        late = turn.given_s - RACE_S
        moments = [at for at in self._changes if late < at < turn.given_s]
        for at_s in (turn.given_s, *reversed(moments), late):
            places = self._places(waiting, number, at_s)
            first = pick(places, self._table, int(at_s * 1000))
            if first is not None and first.job_id == turn.job_id:
                return "right" if at_s == turn.given_s else "raced"
        return "wrong"

    def _places(self, waiting: Sequence[Known], number: int, at_s: float) -> list[Waiting]:
        """Who waited at `at_s`, each at the size of what was not heard of it."""
        heard: dict[str, float] = {}
        for window in self._windows[:number]:
            if window.ended_s <= at_s:
                work_s = self._jobs[window.job_id].works[window.unit]
                heard[window.job_id] = heard.get(window.job_id, 0.0) + work_s
        return [
            Waiting(job.job_id, bucket_of(_left_s(job, heard)), job.arrival_ms)
            for job in waiting
            # its own turn proves that it was there: `seen_s` may be written down a moment late
            if job.seen_s <= at_s or job.job_id == self._windows[number].job_id
        ]


def _left_s(job: Known, heard: Mapping[str, float]) -> float:
    return job.job_s + sum(job.works) - heard.get(job.job_id, 0.0)
