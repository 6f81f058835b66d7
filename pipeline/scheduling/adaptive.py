"""auto: hrrn whose g follows the backlog. Numbers in, at most one move out, with its reason.

    pressure = drain / round * LEAN^(short at risk - long at risk)

    drain    seconds until what waits would be let into the slots: waiting work / speed
    round    seconds a unit keeps its slot: what waits less than that needs no order but its age
    at risk  share of the waiting jobs that would miss their deadline or wait budget, the short and
             the long ones apart: short ones are helped by a larger g, long ones by a smaller

Each rung of the ladder has a g and the pressure from which it is taken. It is left downwards only
below a part of that pressure, and not before a minimum stay, so a backlog that swings by less than
that part moves nothing after its first swing. All state is the policy in force and its age: a
decider that died is followed by another that knows as much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from pipeline.scheduling.policies import Policy
from pipeline.scheduling.scenario import View
from pipeline.scheduling.work import PACKED_S, S0, predicted_work_s

FULL_WINDOW_WORK_S = predicted_work_s(PACKED_S, 1, "en")
"""Work of a unit of a long job, reference slot seconds."""

AUTO = "auto"
"""The name people ask for it by; never the name of a policy that is in force."""


class Mode(StrEnum):
    """Who decides the order of work."""

    FIXED = "fixed"
    """A person has, or the setting."""
    AUTO = "auto"
    """The backlog does, by the rule of this page."""
    TRIAL = "trial"
    """A trial does, block by block: see switchback.py."""


@dataclass(frozen=True)
class Rung:
    """One step of the ladder."""

    g: float
    """0 is fcfs."""
    pressure: float
    """It is taken from here on."""

    @property
    def policy(self) -> Policy:
        """The order of work it stands for."""
        return Policy("hrrn", self.g) if self.g else Policy("fcfs")


LADDER = (Rung(0.0, 0.0), Rung(1.5, 1.0), Rung(3.0, 4.0), Rung(5.0, 32.0))
"""By pressure, both upwards; the first is taken whatever the pressure. Tuned on a day of calls: see
docs/decisions.md, entry 35."""
PART = 0.25
"""A rung is left downwards below this part of its own pressure."""
STAY_S = 60.0
"""How long a policy holds at least."""
LEAN = 16.0
"""All short jobs at risk weigh like so many times the backlog, all long ones like its part."""

LOOK_EACH_S = 5.0
"""How often the backlog is looked at."""

AUTO_START = LADDER[0].policy
"""Before anything is known of the backlog."""


@dataclass(frozen=True)
class Signals:
    """What the rule goes by."""

    drain_s: float
    """Seconds until all that waits would be in the slots, 0 when nothing waits."""
    round_s: float
    """Seconds a unit keeps its slot, above 0."""
    short_at_risk: float = 0.0
    """Share of the waiting jobs, 0..1: of less work than the mean and about to be late."""
    long_at_risk: float = 0.0
    """The same of more work than the mean."""


@dataclass(frozen=True)
class Move:
    """From now on another policy."""

    policy: Policy
    reason: str
    """A sentence with its numbers."""


def is_auto(text: str) -> bool:
    """Whether a person asks for `auto`.

    >>> is_auto(" Auto"), is_auto("hrrn(1)")
    (True, False)
    """
    return text.strip().lower() == AUTO


def pressure(signals: Signals) -> float:
    """The backlog in rounds of the slots, leaned towards whoever is about to be late.

    >>> pressure(Signals(drain_s=12.0, round_s=3.0)), pressure(Signals(12.0, 3.0, long_at_risk=0.5))
    (4.0, 1.0)
    """
    rounds = max(0.0, signals.drain_s) / signals.round_s
    return rounds * float(LEAN ** (signals.short_at_risk - signals.long_at_risk))


def decide(signals: Signals, in_force: Policy, age_s: float) -> Move | None:
    """Where to move from `in_force`, which has held for `age_s` seconds; None: nowhere.

    A policy that is not on the ladder (somebody's before `auto`) is left at once for the rung the
    pressure calls for.

    >>> str(decide(Signals(drain_s=12.0, round_s=3.0), Policy("fcfs"), 60.0).policy)
    'hrrn(3)'
    """
    now = pressure(signals)
    new = max(n for n, rung in enumerate(LADDER) if rung.pressure <= now)
    old = next((n for n, rung in enumerate(LADDER) if rung.policy == in_force), None)
    if old is not None:
        if age_s < STAY_S:
            return None
        if new < old:  # one that still holds by its lower edge is kept
            new = max(n for n in range(new, old + 1) if LADDER[n].pressure * PART <= now)
    if new == old:
        return None
    return Move(LADDER[new].policy, _reason(signals, now, new, old))


class Follower:
    """The rule as a policy of the simulator: asked at every turn, it looks each LOOK_EACH_S.

    A unit's work is not to be seen there: it is taken to be that of a full window, or of a mean job
    that is shorter. With waiting work W and n slots of one reference second a second, drain / round
    = (W / n) / unit work: at any other pace both are longer or shorter alike.
    """

    def __init__(self) -> None:
        self._policy = LADDER[0].policy
        self._since_ms = self._asked_ms = -math.inf

    def __call__(self, now_ms: int, view: View) -> Policy:
        """The policy from now on."""
        if now_ms >= self._asked_ms + 1000 * LOOK_EACH_S:
            self._asked_ms = now_ms
            mean_s = view.waiting_work_s / view.waiting if view.waiting else FULL_WINDOW_WORK_S
            unit_s = max(S0, min(FULL_WINDOW_WORK_S, mean_s))
            signals = Signals(view.waiting_work_s / view.slots, unit_s)
            age_s = (now_ms - self._since_ms) / 1000
            if move := decide(signals, self._policy, age_s):
                self._policy, self._since_ms = move.policy, now_ms
        return self._policy


def _reason(signals: Signals, now: float, new: int, old: int | None) -> str:
    rung = LADDER[new]
    backlog = f"{signals.drain_s:.1f} s of work wait, {signals.drain_s / signals.round_s:.1f} "
    backlog += f"rounds of {signals.round_s:.2f} s"
    late = ""
    if signals.short_at_risk or signals.long_at_risk:
        late = f"; {signals.short_at_risk:.0%} of the jobs are short and about to be late, "
        late += f"{signals.long_at_risk:.0%} long, which makes it count as {now:.1f}"
    if old is not None and new < old:
        edge = f"below {LADDER[new + 1].pressure * PART:g}"
    else:
        edge = f"{rung.pressure:g} or more"
    return f"{backlog}{late}: {edge}, so g = {rung.g:g}."
