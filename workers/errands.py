"""Every Celery task on one page, and the timetable: `python -m workers.run errands`.

An errand's message is a hint and may be lost; `sweep` sends it again. Errands are safe to run
twice.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

from celery import bootsteps
from celery.beat import EmbeddedService, Scheduler
from celery.signals import task_success, worker_ready, worker_shutdown, worker_shutting_down
from celery.worker import state as worker_state

from pipeline.errors import PartDown
from pipeline.fetch.fetcher import Fetcher
from pipeline.fetch.poster import Poster
from pipeline.handover import FETCH, NOTIFY, PROBE
from pipeline.intake.prober import Prober
from pipeline.job import SURVEY, TRANSCRIBE
from pipeline.logs import configure
from pipeline.parts import Parts, open_parts
from pipeline.scheduling.adaptive import LOOK_EACH_S
from pipeline.settings import read_settings
from pipeline.steps import trial
from pipeline.steps.adapt import adapt
from pipeline.steps.erase import erase_again, erase_due
from pipeline.steps.fetch import ask_for_next, fetch, give_way
from pipeline.steps.forecast.calibrate import ROUND_S, calibrate
from pipeline.steps.learn import learn
from pipeline.steps.probe import probe
from pipeline.steps.ratio import write_ratios
from pipeline.steps.retire import retire
from pipeline.steps.tidy import tidy
from pipeline.store import fetches, jobs
from pipeline.store.session import transaction
from pipeline.store.tenants import Clocks
from workers.app import app
from workers.caretaker import Caretaker
from workers.postman import Postman
from workers.ready import say_ready, still_ready

Made = TypeVar("Made")

SWEEP, RATIO, ORDER = "fairscribe.sweep", "fairscribe.ratio", "fairscribe.order"
LEARN, CALIBRATE, TIDY = "fairscribe.learn", "fairscribe.calibrate", "fairscribe.tidy"
RETIRE = "fairscribe.retire"

EVERY_S = {
    SWEEP: 10.0,
    RATIO: 5.0,
    ORDER: LOOK_EACH_S,
    LEARN: 60.0,
    CALIBRATE: ROUND_S,
    TIDY: 600.0,
    RETIRE: 600.0,
}
"""How often each is due. One that has not begun when the next is due is dropped."""

LOST_AFTER_S = 30.0
"""A job nobody probed or fetched for this long is asked for again."""
SWEEP_AT_MOST = 1000
FETCHES_AT_ONCE = 4
"""Of this process's threads, so that slow servers do not keep recordings from being probed."""
FETCHES_SWEPT = 4 * FETCHES_AT_ONCE
"""Each fetch that ends asks for the next: a few messages keep all going."""

_to_close: list[Prober] = []
_fetching = threading.BoundedSemaphore(FETCHES_AT_ONCE)
_stopping = threading.Event()

app.conf.beat_schedule = {
    name: {"task": name, "schedule": every_s, "options": {"expires": every_s}}
    for name, every_s in EVERY_S.items()
}


def _once(make: Callable[[], Made]) -> Callable[[], Made]:
    """Make it when it is first asked for, once.

    `lru_cache` alone makes two where two threads ask at the same moment: of a sandbox the second
    would live, unused, as long as the worker.
    """
    made, lock = lru_cache(maxsize=1)(make), threading.Lock()

    @wraps(make)
    def get() -> Made:
        with lock:
            return made()

    return get


@_once
def parts() -> Parts:
    """The parts of this process."""
    return open_parts(read_settings())


@_once
def prober() -> Prober:
    """The sandbox of this process, shared by its threads.

    Not borrowed from `workers.survey`: importing that would make this worker survey, too.
    """
    made = Prober(max_duration_s=parts().settings.max_duration_h * 3600)
    _to_close.append(made)
    return made


@_once
def clocks() -> Clocks:
    """The tenants' virtual clocks, on the speed of all live workers."""

    def capacity() -> float | None:
        try:
            found = parts().outlooks.now().measures.capacity(TRANSCRIBE)
        except PartDown:
            return None
        return found.speed if found else None

    return Clocks(capacity)


@_once
def fetcher() -> Fetcher:
    """The way out to callers' URLs."""
    settings = parts().settings
    return Fetcher(timeout_s=settings.url_timeout_s, private=settings.url_private)


@app.task(name=PROBE, autoretry_for=(PartDown,), retry_backoff=1, max_retries=5)
def probe_recording(job_id: str) -> None:
    """What is it, how long is it: then it may wait for its survey."""
    here = parts()
    queue, language = here.queues[SURVEY.name], here.settings.language
    probe(here.store, here.storage, prober(), queue, job_id, language, clocks())


# acknowledged at once: a fetch takes longer than a message stays unacknowledged, and the sweeper
# misses one that is not going on
@app.task(name=FETCH, acks_late=False, autoretry_for=(PartDown,), retry_backoff=1, max_retries=5)
def fetch_recording(job_id: str) -> None:
    """Get it from its URL; with all permits taken it waits until a fetch ends."""
    here = parts()
    if not _fetching.acquire(blocking=False):
        give_way(here.store, job_id)
        return
    try:
        fetch(
            here.store,
            here.storage,
            fetcher(),
            here.handover,
            job_id,
            limit_bytes=here.settings.max_upload_bytes,
            stopping=_stopping.is_set,
        )
    finally:
        _fetching.release()
    ask_for_next(here.store, here.handover)


@app.task(name=NOTIFY, send_events=False)
def look_for_news(webhook_id: str) -> None:
    """There is something to tell a webhook; the postman would find it by itself a moment later."""
    _postman().wake()


@app.task(name=SWEEP, send_events=False, autoretry_for=(PartDown,), retry_backoff=1, max_retries=1)
def sweep() -> None:
    """Ask again for probes and fetches whose message or worker was lost."""
    with transaction(parts().store) as c:
        unprobed = jobs.forgotten(c, LOST_AFTER_S, SWEEP_AT_MOST)
        unfetched = fetches.forgotten(c, LOST_AFTER_S, FETCHES_SWEPT)
        by_sender = jobs.senders(c, unprobed)
    for sender, job_ids in by_sender.items():
        parts().handover.probe(job_ids, sender)  # who sent many still goes behind
    parts().handover.fetch(unfetched)


@app.task(name=RATIO, send_events=False)
def write_up_ratios() -> None:
    """Bring the ratios people see up to date; when a part is down, the next beat will."""
    here = parts()
    with contextlib.suppress(PartDown):
        write_ratios(here.store, here.queues, here.settings.start_policy)


@app.task(name=LEARN, send_events=False)
def learn_speed() -> None:
    """Learn from what ended; when Postgres is down, the next beat will."""
    with contextlib.suppress(PartDown):
        learn(parts().store)


@app.task(name=ORDER, send_events=False)
def decide_the_order() -> None:
    """Go on with `auto` or a trial, if one decides; when a part is down, the next beat will."""
    here = parts()
    with contextlib.suppress(PartDown):
        adapt(here.store, here.queues, here.settings.start_policy, here.settings.start_mode)
        trial.tick(here.store, here.queues)


@app.task(name=CALIBRATE, send_events=False)
def calibrate_forecasts() -> None:
    """Compare what was foretold with what came; when a part is down, the next beat will."""
    with contextlib.suppress(PartDown):
        calibrate(parts())


@app.task(name=TIDY, send_events=False, autoretry_for=(PartDown,), retry_backoff=1, max_retries=1)
def tidy_up() -> None:
    """Sweep up what crashes left behind."""
    here = parts()
    erase_again(here.store, here.storage, here.queues, here.keep)
    tidy(here.store, here.storage, here.settings.keep_packed_days)


@app.task(name=RETIRE, send_events=False, autoretry_for=(PartDown,), retry_backoff=1, max_retries=1)
def retire_old() -> None:
    """Erase what was kept for its days."""
    here = parts()
    retire(here.store, here.storage, here.keep)
    erase_due(here.store, here.storage, here.queues, here.keep)


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
    configure("errands", parts().settings.log_level)
    _caretaker().start()
    _postman().start()
    say_ready()


@task_success.connect
def _show_success(**_: Any) -> None:
    # beat, broker, this worker and Postgres all had their part in it
    still_ready()


def _show_work() -> None:
    """Each second: with all threads in long errands nothing succeeds for a while."""
    if worker_state.active_requests:
        still_ready()


@worker_shutting_down.connect
def _hurry(**_: Any) -> None:
    _stopping.set()  # fetches under way are given up: the next worker begins them anew


@worker_shutdown.connect
def _end(**_: Any) -> None:
    _postman().stop()
    _caretaker().stop()
    for sandbox in _to_close:
        sandbox.close()


@_once
def _caretaker() -> Caretaker:
    return Caretaker(parts(), on_tick=_show_work)


@_once
def _postman() -> Postman:
    settings = parts().settings
    timeout_s, private = settings.webhook_timeout_s, settings.webhook_private
    return Postman(parts(), Poster(timeout_s=timeout_s, private=private))


app.steps["worker"].add(BeatStep)
