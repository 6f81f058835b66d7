"""learn: how fast each engine model is, from what its finished jobs took.

Asked each minute, anywhere, without leader: of two at once one does nothing. What is learned
foretells times. It never moves a job in the queue: buckets go by the reference, which is fixed.
"""

from __future__ import annotations

from sqlalchemy import Engine

from pipeline.logs import log
from pipeline.scheduling.learning import differs
from pipeline.scheduling.learning import learn as learn_from
from pipeline.store import work
from pipeline.store.session import transaction

NEWEST = 2000
"""Jobs of a model that are learned from: enough for three coefficients, and forgotten soon."""

KEPT = 5000
"""Jobs of a model whose work is kept."""

RECENT_S = 180.0
"""A model that finished nothing for so long has nothing new to teach: three times the pause between
two rounds."""


def learn(store: Engine) -> list[str]:
    """Learn of every model that worked lately; returns those that turned out different.

    Raises `PartDown`.
    """
    with transaction(store) as c:
        models = work.models_that_worked(c, RECENT_S)
    return [model for model in models if _learn_one(store, model)]


def _learn_one(store: Engine, model: str) -> bool:
    with transaction(store) as c:
        if not work.may_learn(c):
            return False
        work.prune(c, model, KEPT)
        learned = learn_from(work.newest_done(c, model, NEWEST))
        if learned is None or not differs(learned, work.newest_model(c, model)):
            return False
        work.keep_model(c, model, learned)
    log().info("work_learned", model=model, jobs=learned.jobs, r2=learned.r2)
    return True
