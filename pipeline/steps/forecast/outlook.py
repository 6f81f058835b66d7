"""How both lines stand at one moment, and what follows from it for a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pipeline.job import STAGES, SURVEY, TRANSCRIBE, Stage
from pipeline.queue.board import WorkerSpeed
from pipeline.queue.order import Ahead
from pipeline.queue.redis_queue import RedisQueue
from pipeline.scheduling.forecast import (
    NOTHING,
    Capacity,
    Inflow,
    Share,
    inflow,
    rest_s,
    service_s,
    turn_s,
    with_overtaking,
)
from pipeline.scheduling.policies import Policy, Waiting, order_key, pairs
from pipeline.scheduling.work import (
    bucket_of,
    bucket_survey_s,
    bucket_windows,
    bucket_work_s,
    predicted_work_s,
    survey_work_s,
)
from pipeline.store.load import Standing

SLICE_S, SLICES = 5.0, 12
"""Arrivals are counted over the last minute."""

LOOKS = 3
"""How often the order is looked at while it moves: now, then at the turn expected last."""

HEAD = 20
"""Of those who go first so many get a forecast at once."""

WORK_OF: dict[str, Callable[[int], float]] = {
    SURVEY.name: bucket_survey_s,
    TRANSCRIBE.name: bucket_work_s,
}
"""The measure of each stage's speed, for a job of a bucket (see scheduling/forecast.py)."""

WorkAt = Callable[[int], float]
"""Work that waits before a job at a moment, ms of Postgres time."""


@dataclass(frozen=True)
class Forecast:
    """What can be said of a job that has not ended."""

    position: int | None
    """In the queue of its stage, from 1; None when it does not wait."""
    eta_s: float | None
    """Seconds until its end; None while nobody knows how fast it goes."""


@dataclass(frozen=True)
class Outlook:
    """Both lines at one moment."""

    queues: Mapping[str, RedisQueue]
    language: str
    now_ms: int
    asked: Standing | None
    """The job asked for, if it is live."""
    in_hand: Sequence[Standing]
    policies: Mapping[str, Policy]
    """By stage name, as the next two."""
    speeds: Mapping[str, Sequence[WorkerSpeed]]
    slices: Sequence[Mapping[int, int]]
    """Jobs that came, by bucket, the newest slice of SLICE_S first."""
    _answers: dict[tuple[str, Waiting, int], Ahead] = field(default_factory=dict)
    """What was asked of a queue before."""

    # -- forecasts --------------------------------------------------------------------------

    def job(self, standing: Standing) -> Forecast:
        """Position and ETA of a live job."""
        stage = next(s for s in STAGES if standing.state in (s.waiting, s.working))
        if standing.state is stage.working:
            return Forecast(None, self._in_hand_eta_s(stage, standing))
        ahead = self._ahead(stage, standing.place, self.now_ms)
        own = self._left(standing) if stage is TRANSCRIBE else self.unplanned(standing.place)
        eta_s = self.waiting_eta_s(stage, standing.place, own)
        return Forecast(ahead.position, eta_s)

    def waiting_eta_s(
        self,
        stage: Stage,
        place: Waiting,
        own: Share,
        *,
        work_now: Mapping[str, float] | None = None,
    ) -> float | None:
        """Seconds until the end of a job that waits at `stage`; `own` is its work for the engine.

        `work_now`: work known to wait before it, by stage name and in that stage's measure; then
        the queues are not asked.
        """
        engine = self.capacity(TRANSCRIBE)
        if engine is None:
            return None
        ahead = self._work_before(TRANSCRIBE, place, work_now)
        if stage is TRANSCRIBE:
            return self._turn_s(TRANSCRIBE, engine, place, ahead) + self._service_s(engine, own)
        surveyors = self.capacity(SURVEY)
        if surveyors is None:
            return None
        audio = self._work_before(SURVEY, place, work_now)
        surveyed_s = self._turn_s(SURVEY, surveyors, place, audio)
        surveyed_s += surveyors.residence_s(bucket_survey_s(place.bucket))
        return self._after_survey_s(engine, place, own, surveyed_s, ahead)

    def _after_survey_s(
        self, engine: Capacity, place: Waiting, own: Share, surveyed_s: float, ahead: WorkAt
    ) -> float:
        """The end of a job whose survey ends in `surveyed_s`, or its turn comes later than that."""
        turn = self._turn_s(TRANSCRIBE, engine, place, ahead)
        return max(surveyed_s, turn) + self._service_s(engine, own)

    def _in_hand_eta_s(self, stage: Stage, standing: Standing) -> float | None:
        capacity, engine = self.capacity(stage), self.capacity(TRANSCRIBE)
        if capacity is None or engine is None:
            return None
        place = self._place_left(standing)
        left = self._left(standing)
        waiting = 0.0
        if left.units * capacity.workers > capacity.slots:
            waiting = self._work_before(stage, place, None)(self.now_ms)
        rest = rest_s(
            capacity,
            left,
            whole=replace(left, units=max(1, standing.windows_total))
            if stage is TRANSCRIBE
            else left,
            since_s=standing.since_s,
            serving=self._serving(stage, place, self.now_ms),
            waiting_work=waiting,
            busy_slots=self._busy(stage),
        )
        if stage is TRANSCRIBE:
            return rest
        ahead = self._work_before(TRANSCRIBE, place, None)
        return self._after_survey_s(engine, place, self.unplanned(place), rest, ahead)

    def head_etas_s(self, stage: Stage, places: Sequence[Waiting]) -> list[float | None]:
        """ETAs of the first who wait at `stage`, in their order; None beyond the first HEAD.

        Like `waiting_eta_s`, but the order is looked at once, now: their turn is soon.
        """
        first = places[:HEAD]
        other = TRANSCRIBE if stage is SURVEY else SURVEY
        beside = self.queues[other.name].order.ahead(first, self.policies[other.name], self.now_ms)
        before: dict[int, int] = {}
        etas: list[float | None] = []
        for place, ahead in zip(first, beside, strict=True):
            coming = self._outranking(SURVEY, place, self.now_ms)
            work = sum(bucket_work_s(held.place.bucket) for held in coming)
            work += _work(before, bucket_work_s) + _work(ahead.by_bucket, bucket_work_s)
            known = {SURVEY.name: _work(before, bucket_survey_s), TRANSCRIBE.name: work}
            own = self.unplanned(place)
            etas.append(self.waiting_eta_s(stage, place, own, work_now=known))
            before[place.bucket] = before.get(place.bucket, 0) + 1
        return etas + [None] * (len(places) - len(first))

    def all_done_s(self) -> float | None:
        """Seconds until everything that is probed by now has ended; None when nobody can say."""
        engine, surveyors = self.capacity(TRANSCRIBE), self.capacity(SURVEY)
        sizes = {name: queue.order.by_bucket() for name, queue in self.queues.items()}
        audio = _work(sizes[SURVEY.name], bucket_survey_s) + self._serving(SURVEY).work
        unheard = [h for h in self.in_hand if h.state is SURVEY.working]
        work = self._serving(TRANSCRIBE).work + sum(bucket_work_s(h.place.bucket) for h in unheard)
        work += sum(_work(counts, bucket_work_s) for counts in sizes.values())
        if not work:
            return 0.0
        if engine is None or (audio and surveyors is None):
            return None
        survey_s = audio / surveyors.speed if surveyors else 0.0
        return max(survey_s, work / engine.speed)

    # -- the parts of a forecast ------------------------------------------------------------

    def capacity(self, stage: Stage) -> Capacity | None:
        """What the live workers of a stage do; None when none has done anything yet."""
        live = [w for w in self.speeds[stage.name] if w.speed]
        if not live:
            return None
        return Capacity(sum(w.speed or 0.0 for w in live), sum(w.slots for w in live), len(live))

    def unplanned(self, place: Waiting) -> Share:
        """What a job of this size is to the engine, before its windows are known."""
        return Share(bucket_work_s(place.bucket), bucket_windows(place.bucket))

    def _turn_s(self, stage: Stage, capacity: Capacity, place: Waiting, ahead: WorkAt) -> float:
        """Seconds until a place's first slot, its order looked at again for the moment found."""
        table = pairs(self.policies[stage.name])
        moves = len({u for u, _ in table}) > 1
        expected_s = 0.0
        for _ in range(LOOKS if moves else 1):
            moment = self.now_ms + int(expected_s * 1000)
            serving = self._serving(stage, place, moment)
            base_s = turn_s(capacity, ahead(moment), serving)
            overtaking = partial(
                self._inflow(stage).overtaking,
                place,
                table,
                self.now_ms,
                work_of=WORK_OF[stage.name],
            )
            before_s = expected_s
            expected_s = with_overtaking(base_s, capacity.speed, overtaking)
            if abs(expected_s - before_s) <= 0.05 * expected_s:
                break
        return expected_s

    def _work_before(
        self, stage: Stage, place: Waiting, known: Mapping[str, float] | None
    ) -> WorkAt:
        """Work that waits before a place at `stage`, as a function of the moment.

        For the engine that is also what is not surveyed yet and outranks it: it will come first.
        """
        if known is not None:
            return lambda _: known[stage.name]
        lines = (SURVEY,) if stage is SURVEY else STAGES

        def work(moment: int) -> float:
            found = 0.0
            for line in lines:
                by_bucket = self._ahead(line, place, moment).by_bucket
                found += _work(by_bucket, WORK_OF[stage.name])
            if stage is TRANSCRIBE:
                coming = self._outranking(SURVEY, place, moment)
                found += sum(bucket_work_s(h.place.bucket) for h in coming)
            return found

        return work

    def _ahead(self, line: Stage, place: Waiting, moment: int) -> Ahead:
        asked = (line.name, place, moment)
        if asked not in self._answers:
            queue, policy = self.queues[line.name], self.policies[line.name]
            (self._answers[asked],) = queue.order.ahead([place], policy, moment)
        return self._answers[asked]

    def _service_s(self, engine: Capacity, own: Share) -> float:
        return service_s(engine, own, engine.slots - self._busy(TRANSCRIBE))

    def _inflow(self, stage: Stage) -> Inflow:
        return inflow(self.slices, SLICE_S, WORK_OF[stage.name])

    def _outranking(self, stage: Stage, place: Waiting | None, moment: int) -> list[Standing]:
        """Jobs in hand at `stage` that go before `place`; all of them for None."""
        held = [h for h in self.in_hand if h.state is stage.working]
        if place is None:
            return held
        table = pairs(self.policies[stage.name])
        own = order_key(place, table, moment)
        return [h for h in held if order_key(self._place_left(h), table, moment) < own]

    def _serving(self, stage: Stage, place: Waiting | None = None, moment: int = 0) -> Share:
        shares = [self._left(held) for held in self._outranking(stage, place, moment)]
        return Share(sum(s.work for s in shares), sum(s.units for s in shares))

    def _busy(self, stage: Stage) -> int:
        return self._serving(stage).units

    def _left(self, standing: Standing) -> Share:
        """What is left of a job at the stage it stands at, in that stage's measure."""
        if standing.state in (SURVEY.waiting, SURVEY.working):
            return Share(survey_work_s(standing.duration_s), 1)
        total = max(1, standing.windows_total)
        units = max(0, total - standing.windows_done)
        if not units:
            return NOTHING
        language = standing.language or self.language
        speech_s = standing.speech_s * units / total
        return Share(predicted_work_s(speech_s, units, language), units)

    def _place_left(self, standing: Standing) -> Waiting:
        """Where a job in hand would stand with what is left of it: so its worker ranks it."""
        if standing.state is not TRANSCRIBE.working:
            return standing.place
        return replace(standing.place, bucket=bucket_of(self._left(standing).work))


def _work(by_bucket: Mapping[int, int], work_of: Callable[[int], float]) -> float:
    return sum(work_of(bucket) * count for bucket, count in by_bucket.items())
