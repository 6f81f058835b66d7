"""Which job killed the engine: units that were in it run again, one job at a time.

So does a unit the engine never answered while it answered others: alone, it shows whose fault that
was.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.errors import EngineDead, EnginePoisoned
from workers.held import Held


class Suspects:
    """Jobs that had units in an engine when it died, or that it did not answer, and those units."""

    def __init__(self) -> None:
        self._units: dict[str, set[int]] = {}
        self._in_last_death: set[str] = set()
        self._before: set[str] = set()

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._units

    def __len__(self) -> int:
        return len(self._units)

    def add(self, job_id: str, unit: int) -> None:
        """A unit that was in the engine which just died."""
        self._units.setdefault(job_id, set()).add(unit)
        self._in_last_death.add(job_id)

    def add_late(self, job_id: str, unit: int) -> None:
        """A unit the engine did not answer, though it lives."""
        self._units.setdefault(job_id, set()).add(unit)

    def take_culprit(self, death: EngineDead) -> str | None:
        """The one job that was in the engine that just died; None when there were several.

        Poison outlives the request that brought it: what another job left behind may be found by
        one that is alone. So of poison only a job is guilty that had a new engine to itself.
        """
        together, self._in_last_death = self._in_last_death, set()
        before, self._before = self._before, set(self._units)
        if len(together) != 1 or (isinstance(death, EnginePoisoned) and not together <= before):
            return None
        return together.pop()

    def next(self, held: Mapping[str, Held], alone: str | None, now_s: float) -> Held | None:
        """The suspect whose units may run now: the one that already runs, else the first.

        `alone` is the job with units in flight, if any; `now_s` is monotonic.
        """
        for gone in [job_id for job_id in self._units if job_id not in held]:
            self.drop(gone)
        for job_id in [alone] if alone else list(self._units):
            job = held.get(job_id)
            if (
                job
                and job.not_before_s <= now_s
                and self._units.get(job_id, set()) & set(job.waiting)
            ):
                return job
        return None

    def take(self, held: Held) -> int:
        """The next suspect unit of this job; it is no longer waiting."""
        unit = min(self._units[held.job_id] & set(held.waiting))
        held.waiting.remove(unit)
        return unit

    def clear_unit(self, job_id: str, unit: int) -> None:
        """A unit ended without harm; a job with none left is innocent."""
        if job_id in self._units:
            self._units[job_id].discard(unit)
            if not self._units[job_id]:
                self.drop(job_id)

    def drop(self, job_id: str) -> None:
        """The job is gone from this worker."""
        self._units.pop(job_id, None)
        self._before.discard(job_id)
