"""A sample of forecasts is written down and, when its jobs have ended, compared with the truth.

Every `ROUND_S` a few live jobs of each kind (state) and horizon are foretold, drawn by chance.
Long horizons are sampled more rarely: their forecasts change slowly and stay open for long.
"""

from __future__ import annotations

import random

from pipeline.job import STAGES
from pipeline.scheduling.calibration import HORIZONS_S, KEPT, horizon
from pipeline.steps.forecast import Sources, look
from pipeline.steps.forecast.outlook import Outlook
from pipeline.store import forecasts, load
from pipeline.store.forecasts import Foretold
from pipeline.store.load import Standing
from pipeline.store.session import transaction

ROUND_S = 2.0
"""How often the errand runs."""

DRAWN = 12
"""Jobs of each line, and as many in hand, that are looked at in a round."""

EACH = 3
"""Of one kind and horizon so many are noted in a round."""


def calibrate(parts: Sources) -> None:
    """One round: settle what has ended, note what is foretold now. Raises `PartDown`."""
    with transaction(parts.store) as c:
        forecasts.settle(c)
    if not any(sum(queue.counts()) for queue in parts.queues.values()):
        return
    outlook = look(parts)
    waiting = [job_id for queue in parts.queues.values() for job_id in queue.order.some(DRAWN)]
    held = random.sample(list(outlook.in_hand), min(2 * DRAWN, len(outlook.in_hand)))
    with transaction(parts.store) as c:
        open_ones = forecasts.unsettled(c)
        drawn = load.standings(c, waiting + [one.place.job_id for one in held])
        forecasts.note(c, _chosen(outlook, drawn, open_ones))


def _chosen(
    outlook: Outlook, drawn: list[Standing], open_ones: dict[tuple[str, int], int]
) -> list[Foretold]:
    """At most EACH of a kind and horizon; none where KEPT wait for their truth already."""
    found: list[Foretold] = []
    taken: dict[tuple[str, int], int] = {}
    working = {stage.working for stage in STAGES}
    random.shuffle(drawn)
    for standing in drawn:
        raw_s = outlook.raw_s(standing)
        if raw_s is None or (standing.state in working and not raw_s):
            continue
        group = standing.state.value, horizon(raw_s)
        enough = min(EACH, KEPT - open_ones.get(group, 0))
        if taken.get(group, 0) >= enough or random.random() > _chance(group[1]):
            continue
        taken[group] = taken.get(group, 0) + 1
        times = outlook.calibrated(standing.state, raw_s)
        found.append(Foretold(standing.place.job_id, group[0], raw_s, times.p50_s, times.p90_s))
    return found


def _chance(at: int) -> float:
    """That a forecast of this horizon is noted. A job whose end is far is drawn in more rounds, and
    with this each is noted about equally often.
    """
    return min(1.0, 60.0 / HORIZONS_S[at - 1]) if at else 1.0
