"""How far forecasts are trusted: factors learned from how earlier ones came."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.scheduling.calibration import (
    CENTRES_S,
    HORIZONS_S,
    KEPT,
    SHIPPED,
    Calibration,
    conformal,
    horizon,
    ratio,
)

ratios = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=60)


@given(ratios, st.sampled_from([0.5, 0.9]))
def test_of_exchangeable_ratios_the_part_asked_for_lies_below_their_conformal_quantile(
    found: list[float], part: float
) -> None:
    """Each of n + 1 in turn is the one to come: averaged over them, coverage holds for any values,
    unless the others are too few to say, when the largest stands in.
    """
    if len(found) < 2:
        return
    covered = 0
    for n, to_come in enumerate(found):
        others = [(r, 1.0) for r in found[:n] + found[n + 1 :]]
        covered += to_come <= conformal(others, part)
    enough = part * len(found) <= len(found) - 1
    assert covered / len(found) >= (part if enough else 1 - 1 / len(found)) - 1e-9


@given(ratios)
def test_a_quantile_is_one_of_the_ratios_and_grows_with_its_part(found: list[float]) -> None:
    weighted = [(r, 1.0) for r in found]
    half, most = conformal(weighted, 0.5), conformal(weighted, 0.9)
    assert {half, most} <= set(found)
    assert half <= most


def test_a_fresh_installation_begins_with_what_is_shipped() -> None:
    fresh = Calibration({})
    for kind, shipped in SHIPPED.items():
        p50_s, p90_s = fresh.told(kind, 100.0)
        assert 100.0 * min(shipped) < p50_s < p90_s <= 100.0 * max(shipped)
        assert list(shipped) == sorted(shipped)


def test_after_enough_forecasts_their_ratios_alone_count() -> None:
    rng = random.Random(1)
    learned = [rng.lognormvariate(1.0, 0.5) for _ in range(KEPT)]
    calibration = Calibration({("running", 2): learned})
    p50_s, p90_s = calibration.told("running", CENTRES_S[2])
    to_come = [CENTRES_S[2] * rng.lognormvariate(1.0, 0.5) for _ in range(2000)]
    assert sum(truth <= p50_s for truth in to_come) / 2000 == pytest.approx(0.5, abs=0.12)
    assert sum(truth <= p90_s for truth in to_come) / 2000 == pytest.approx(0.9, abs=0.06)


def test_only_the_newest_ratios_count_so_a_change_of_speed_is_soon_forgotten() -> None:
    now, before = [1.0] * KEPT, [9.0] * KEPT
    assert Calibration({("running", 2): now + before}).told("running", 25.0)[0] == 25.0


def test_where_one_horizon_has_few_the_others_of_its_kind_stand_in() -> None:
    elsewhere = {("probed", 3): [3.0] * KEPT}
    shipped_s = Calibration({}).told("probed", 25.0)[0]
    assert Calibration(elsewhere).told("probed", 25.0)[0] > shipped_s
    assert Calibration(elsewhere).told("surveyed", 25.0) == Calibration({}).told("surveyed", 25.0)
    own = elsewhere | {("probed", 2): [0.5] * 50}
    assert Calibration(own).told("probed", 25.0)[0] == 12.5


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(sorted(SHIPPED)), st.integers(0, len(HORIZONS_S))), ratios
    ),
    st.sampled_from(sorted(SHIPPED)),
    st.floats(0.0, 1e6),
)
def test_a_p90_is_never_before_its_p50_and_neither_is_in_the_past(
    learned: dict[tuple[str, int], list[float]], kind: str, raw_s: float
) -> None:
    p50_s, p90_s = Calibration(learned).told(kind, raw_s)
    assert 0 < p50_s <= p90_s


@pytest.mark.parametrize("edge_s", [*HORIZONS_S, *CENTRES_S])
def test_a_forecast_does_not_jump_where_one_horizon_passes_into_the_next(edge_s: float) -> None:
    calibration = Calibration({("running", n): [1.0 + n / 3] * 50 for n in range(5)})
    just_before, just_after = (
        calibration.told("running", edge_s * more)[0] for more in (0.999, 1.001)
    )
    assert just_before < just_after < just_before * 1.01
    assert horizon(edge_s) >= horizon(edge_s * 0.999)


def test_a_forecast_of_nothing_is_compared_with_a_tenth_of_a_second() -> None:
    assert ratio(1.0, 0.0) == 10.0
