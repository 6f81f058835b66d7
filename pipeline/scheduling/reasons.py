"""Why a job stands where it does, in one sentence with its numbers."""

from __future__ import annotations

from pipeline.scheduling.policies import Policy

MOST = {"fcfs": "the longest", "sjf": "the least", "hrrn": "the highest", "aged": "the highest"}


def why(policy: Policy, wait_s: float, work_s: float, position: int) -> str:
    """What `policy` looks at for a job at `position` (from 1) that waited `wait_s` for `work_s`.

    >>> why(Policy("hrrn", 1.5), 30.0, 6.0, 1)
    'waited 30 s for 6 s of work: 30/6^1.5 = 2.041, the highest'
    >>> why(Policy("hrrn", 2.0, 300.0), 900.0, 600.0, 1)
    'waited 900 s for 600 s of work, more than 300: 900/(600*300) = 0.005, the highest'
    >>> why(Policy("sjf"), 30.0, 6.0, 4)
    '6 s of work, number 4 from the least'
    """
    most = MOST[policy.name]
    stands = most if position == 1 else f"number {position} from {most}"
    waited, work, g = f"{wait_s:.4g}", f"{work_s:.4g}", policy.parameter or 0.0
    if policy.name == "fcfs":
        return f"waited {waited} s, {stands}"
    if policy.name == "sjf":
        return f"{work} s of work, {stands}"
    if policy.name == "aged":
        rank = wait_s - g * work_s
        return f"waited {waited} s less {g:g} times {work} s of work = {rank:.4g}, {stands}"
    knee_s = policy.knee_s
    if knee_s and work_s > knee_s:
        by = f"({work}*{knee_s:g}{_power(g - 1)}) = {wait_s / (work_s * knee_s ** (g - 1)):.4g}"
        return (
            f"waited {waited} s for {work} s of work, more than {knee_s:g}: {waited}/{by}, {stands}"
        )
    ratio = f"{waited}/{work}{_power(g)} = {wait_s / work_s**g:.4g}"
    return f"waited {waited} s for {work} s of work: {ratio}, {stands}"


def _power(g: float) -> str:
    return "" if g == 1 else f"^{g:g}"
