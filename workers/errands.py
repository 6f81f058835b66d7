"""Every Celery task on one page, and the timetable: `celery -A workers.errands worker`.

An errand's message is a hint and may be lost; `sweep` sends it again. Errands are safe to run
twice.
"""

from __future__ import annotations

import contextlib
from functools import lru_cache
from typing import Any

from celery import bootsteps
from celery.beat import EmbeddedService, Scheduler
from celery.signals import worker_ready, worker_shutdown

from pipeline.errors import PartDown
from pipeline.handover import PROBE
from pipeline.intake.prober import Prober
from pipeline.job import SURVEY
from pipeline.logs import configure
from pipeline.parts import Parts, open_parts
from pipeline.settings import read_settings
from pipeline.steps.probe import probe
from pipeline.steps.ratio import write_ratios
from pipeline.steps.tidy import tidy
from pipeline.store import jobs
from pipeline.store.session import transaction
from workers.app import app
from workers.caretaker import Caretaker
from workers.ready import say_ready

SWEEP = "fairscribe.sweep"
SWEEP_EVERY_S = 10.0
RATIO = "fairscribe.ratio"
RATIO_EVERY_S = 5.0
TIDY = "fairscribe.tidy"
TIDY_EVERY_S = 600.0
PROBE_LOST_AFTER_S = 30.0
"""A job nobody probed for this long is asked for again."""
SWEEP_AT_MOST = 1000

app.conf.beat_schedule = {
    SWEEP: {"task": SWEEP, "schedule": SWEEP_EVERY_S, "options": {"expires": SWEEP_EVERY_S}},
    RATIO: {"task": RATIO, "schedule": RATIO_EVERY_S, "options": {"expires": RATIO_EVERY_S}},
    TIDY: {"task": TIDY, "schedule": TIDY_EVERY_S, "options": {"expires": TIDY_EVERY_S}},
}


@lru_cache(maxsize=1)
def parts() -> Parts:
    """The parts of this process."""
    return open_parts(read_settings())


@lru_cache(maxsize=1)
def prober() -> Prober:
    """The sandbox of this process, shared by its threads.

    Not borrowed from `workers.survey`: importing that would make this worker survey, too.
    """
    return Prober(max_duration_s=parts().settings.max_duration_h * 3600)


@app.task(name=PROBE, autoretry_for=(PartDown,), retry_backoff=1, max_retries=5)
def probe_recording(job_id: str) -> None:
    """What is it, how long is it: then it may wait for its survey."""
    here = parts()
    queue, language = here.queues[SURVEY.name], here.settings.language
    probe(here.store, here.storage, prober(), queue, job_id, language)


@app.task(name=SWEEP, send_events=False, autoretry_for=(PartDown,), retry_backoff=1, max_retries=1)
def sweep() -> None:
    """Ask again for probes whose message or worker was lost."""
    with transaction(parts().store) as c:
        forgotten = jobs.forgotten(c, PROBE_LOST_AFTER_S, SWEEP_AT_MOST)
    parts().handover.probe(forgotten)


@app.task(name=RATIO, send_events=False)
def write_up_ratios() -> None:
    """Bring the ratios people see up to date; when a part is down, the next beat will."""
    here = parts()
    with contextlib.suppress(PartDown):
        write_ratios(here.store, here.queues, here.settings.start_policy)


@app.task(name=TIDY, send_events=False, autoretry_for=(PartDown,), retry_backoff=1, max_retries=1)
def tidy_up() -> None:
    """Sweep up what crashes left behind."""
    here = parts()
    tidy(here.store, here.storage)


class Timetable(Scheduler):
    """The schedule, in memory: what was last sent when is not worth a file."""

    def setup_schedule(self) -> None:
        """See `celery.beat.Scheduler`."""
        self.merge_inplace(self.app.conf.beat_schedule)


class BeatStep(bootsteps.StartStopStep):
    """The timetable, as a thread: Celery's own `-B` starts a process that outlives a kill -9."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        self._beat: Any = None
        super().__init__(parent, **kwargs)

    def start(self, parent: Any) -> None:
        """Begin to send what is due."""
        self._beat = EmbeddedService(parent.app, thread=True, scheduler_cls=Timetable)
        self._beat.start()

    def stop(self, parent: Any) -> None:
        """Send no more."""
        if self._beat is not None:
            self._beat.stop()


@worker_ready.connect
def _begin(**_: Any) -> None:
    configure("errands")
    _caretaker().start()
    say_ready()


@worker_shutdown.connect
def _end(**_: Any) -> None:
    _caretaker().stop()
    if prober.cache_info().currsize:
        prober().close()


@lru_cache(maxsize=1)
def _caretaker() -> Caretaker:
    return Caretaker(parts())


app.steps["worker"].add(BeatStep)
