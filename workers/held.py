"""A job in a worker's hands, and what a stage does to it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from pipeline.errors import EngineDead
from pipeline.job import Stage, Ticket
from pipeline.queue.redis_queue import Floor
from pipeline.scheduling.policies import Waiting
from workers.flower_events import JobRequest


class Work(Protocol):
    """What a puller does to the jobs of its stage. `opened` is the stage's own record of a job.

    A job is a number of units that may run side by side; what a unit is (a window, a whole file)
    is the stage's affair. `open`, `finish` and `floor` are called in a thread, coroutines on the
    loop. What touches the job raises `RecordingRefused` or `JobFailed` (it ends), `LeaseLost`
    (write nothing), `PartDown` (again later; `SoundUnreadable`: and nobody else waits); `run` also
    `EngineDead` (again, after `recover`), `WindowLate` (again, alone) and `WindowRefused` (it
    ends). Anything else is a fault of ours and ends the job as unexpected.
    """

    stage: Stage
    task_name: str
    """The Celery task it appears as in Flower."""
    slots: int
    """Units worth having in flight; fewer after a `recover` for want of memory."""
    slots_wanted: int
    """As many as were asked for."""
    ahead: int
    """Units worth having ready beside them, so that no slot waits for one."""
    on_lost: Callable[[str], None]
    """Set by the puller: takes the id of a job whose fence refused a write, on the loop."""
    stall_s: float
    """With units in flight and none ending for this long, the work is taken for dead."""
    stuck_s: float
    """A job none of whose steps ends for this long is not kept any longer."""
    check_s: float
    """Without a job in hand `check` is asked this often; 0: never."""

    @property
    def model(self) -> str | None:
        """The model it hears with; None for a stage that hears nothing."""
        ...

    async def start(self) -> None:
        """Get ready; may take minutes. Raises when it cannot."""
        ...

    async def recover(self, death: EngineDead) -> None:
        """After `death`: get ready again. Raises when it cannot."""
        ...

    async def check(self) -> None:
        """See whether the work is done right, on something known. Raises `EngineDead`."""
        ...

    async def stop(self) -> None:
        """Free everything. Safe to call twice."""
        ...

    def task_id(self, job_id: str) -> str:
        """The id of that task."""
        ...

    def open(self, ticket: Ticket) -> Any:
        """Read what the job needs."""
        ...

    def units(self, opened: Any) -> list[int]:
        """What is left to do and may be begun now, in order. Asked again whenever all of that is
        done; nothing more: the job is.
        """
        ...

    def bucket_left(self, opened: Any) -> int:
        """Size bucket of what is left."""
        ...

    def prepare(self, opened: Any, unit: int) -> None:
        """Begin to get a unit ready that comes next; on the loop. Its errors are `run`'s."""
        ...

    async def run(self, opened: Any, unit: int) -> None:
        """Do one unit. It may be saved later."""
        ...

    async def settle(self, opened: Any) -> None:
        """Before a job is given back: save what is done of it, as far as possible now."""
        ...

    def let_go(self, opened: Any) -> None:
        """The job ends: save nothing more of it, forget what is ready; on the loop."""
        ...

    def unit_work(self, opened: Any, unit: int) -> float:
        """How much work a unit is, in the stage's own measure (see scheduling/forecast.py)."""
        ...

    def finish(self, opened: Any) -> str:
        """All units are done: commit. Returns a few words for Flower, without content."""
        ...

    def facts(self) -> dict[str, Any]:
        """What `celery inspect stats` shows of it besides. Any thread."""
        ...

    def floor(self) -> Floor | None:
        """What a newly claimed job must outrank, besides the jobs in hand; None: nothing."""
        ...


@dataclass(eq=False)
class Held:
    """One granted job while this worker has it."""

    ticket: Ticket
    token: str
    request: JobRequest
    opened: Any = None
    """The stage's own record, once it is read."""
    waiting: deque[int] = field(default_factory=deque)
    """Units nobody runs."""
    running: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    number: int = 0
    """Counts the jobs taken by this worker."""
    starved_since_s: float | None = None
    """Since when it has units waiting and none running, while a job taken later got a slot;
    monotonic."""
    not_before_s: float = 0.0
    """After an outage, or a read that failed: when to try again, monotonic."""
    unreadable_since_s: float | None = None
    """Since when its own sound cannot be read, though storage answers; monotonic."""
    unreadable_times: int = 0
    """How often that was tried in vain."""
    moved_s: float = field(default_factory=time.monotonic)
    """When a step of it last ended, or the first of several units began; monotonic."""
    ended: bool = False
    """Its end has begun; nothing of it is started any more."""

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.ticket.job_id

    def place(self, work: Work) -> Waiting:
        """Where it would stand in the queue with what is left of it."""
        return Waiting(self.job_id, work.bucket_left(self.opened), self.ticket.arrival_ms)
