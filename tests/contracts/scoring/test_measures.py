"""Quality, failures, exposure and cost, recomputed by hand on small records."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.scoring.episode import truncate
from contracts.scoring.measure_table import MEASURES
from contracts.scoring.measures import contract_kept_per_slice, failed_ratio, measure_episode
from contracts.scoring.quality import healthy_quality, pool_quality
from tests.support.fleets.episodes import broken_record, move_at, quiet_record, step_fault


def test_failed_ratio_counts_errors_and_shed_over_offered() -> None:
    """30 failed and 10 shed of 4000 offered is 1 %, all of it after row 100."""
    record = quiet_record()
    record.failed[100:115], record.shed[150:155] = 1, 1
    assert failed_ratio(record) == pytest.approx(40 / 4000)
    assert failed_ratio(record, 100) == pytest.approx(40 / 2000)


def test_quality_loss_counts_a_failed_or_shed_request_as_its_mean_tokens() -> None:
    """From row 50: slice 0 loses 150 rows x 20 TV tokens, slice 1 also 15 requests of 20 tokens."""
    record = broken_record()
    record.excess_tv_tokens[50:] = 20.0
    record.shed[60:75, 1] = 1
    record.answered_tokens[60:75, 1] -= 20.0
    quality = measure_episode(record, healthy_quality(record)).quality
    offered = 150 * 200.0
    assert quality.loss_by_slice == pytest.approx((3000 / offered, (3000 + 300) / offered))
    assert quality.loss == pytest.approx(6300 / (2 * offered))
    assert quality.loss_served_by_slice == pytest.approx((0.1, 3000 / (offered - 300)))
    assert quality.preservation_by_slice == pytest.approx((0.9 / 0.99, (1 - 3300 / offered) / 0.99))


def test_preservation_is_one_when_the_fault_changes_nothing() -> None:
    """The same loss in the window as in the healthy baseline preserves everything."""
    record = quiet_record(incident=step_fault())
    assert measure_episode(record, healthy_quality(record)).quality.preservation == pytest.approx(1.0)


def test_healthy_baseline_pools_only_rows_before_the_onset() -> None:
    """Two seeds of 50 healthy rows give 100 rows of tokens; the broken rows stay out."""
    record = broken_record()
    record.excess_tv_tokens[50:] = 150.0
    pooled = pool_quality([healthy_quality(record), healthy_quality(record)])
    assert pooled.offered_tokens.tolist() == [2 * 50 * 200.0] * 2
    assert pooled.excess_tv_tokens.tolist() == [2 * 50 * 2.0] * 2


def test_exposure_starts_at_the_onset_and_excludes_in_flight_requests() -> None:
    """60 exposed answers after the onset, 20 of them in flight, over 150 rows x 10 on the hard slice."""
    record = broken_record()
    record.exposed[40:56, 0], record.exposed_in_flight[54:56, 0] = 10, 10
    found = measure_episode(record, healthy_quality(record)).exposure
    assert (found.exposed, found.in_flight) == (40.0, 20.0)
    assert found.ratio == pytest.approx(40 / 1500)


def test_cost_and_goodput() -> None:
    """Half of the time on known-good; 5 % of the answers late; accelerator time of both kernels."""
    record = move_at(quiet_record(), 100)
    record.slo_missed[:, 0] = 1
    found = measure_episode(record, healthy_quality(record)).service
    assert found.known_good_ratio == pytest.approx(0.5)
    assert found.goodput_ratio == pytest.approx(0.95)
    assert (found.accelerator_s, found.probe_tokens) == (400.0, 12_000.0)


def test_useful_tokens_and_the_failed_or_exposed_share() -> None:
    """Useful over offered tokens; 20 failed, 10 shed and 10 exposed of 4000 requests are 1 %."""
    record = quiet_record()
    record.useful_tokens[:100] = 100.0
    record.failed[:20, 0], record.shed[:10, 1], record.exposed[:10, 0] = 1, 1, 1
    found = measure_episode(record, healthy_quality(record)).service
    assert found.useful_ratio == pytest.approx((100 * 100 + 100 * 198) / (200 * 200))
    assert found.failed_or_exposed_ratio == pytest.approx(0.01)


def test_contract_kept_is_the_share_of_rows_inside() -> None:
    """A slice served 50 of 200 rows by a violating kernel is inside for three quarters of them."""
    record = move_at(broken_record(), 100)
    assert contract_kept_per_slice(record).tolist() == [0.75, 0.75]


def test_without_an_incident_its_measures_are_not_applicable() -> None:
    """A control has no MTTR, lag or incident failures, but quality, switches and cost."""
    record = quiet_record()
    episode = measure_episode(record, healthy_quality(record))
    missing = {measure.name for measure in MEASURES if math.isnan(measure.value(episode))}
    assert missing == {
        "mttr_s",
        "unrecovered",
        "detection_lag_s",
        "detection_missed",
        "already_mitigated",
        "breach_s",
        "failed_ratio_incident",
        "violation_lag_s",
        "visible_lag_s",
        "slice_lag_s",
        "lower_bound_s",
        "excess_s",
        "infeasible",
        "regret_ratio",
    }


def test_truncation_at_the_fault_end_censors_its_recovery() -> None:
    """A fault that ends at 150 s recovers by itself under any policy; up to its end it has not."""
    record = broken_record(300)
    record.violating[150:] = False
    whole = measure_episode(record, healthy_quality(record)).incident
    cut = truncate(replace(record, incident=step_fault()), 150.0)
    until_end = measure_episode(cut, healthy_quality(cut)).incident
    assert whole is not None
    assert until_end is not None
    assert (whole.recovered, whole.mttr_s) == (True, 100.0)
    assert (until_end.recovered, until_end.mttr_s) == (False, 100.0)
    assert len(cut.table) == 150
    assert cut.replica_kernel.shape == (3,)


@given(loss=st.floats(0.0, 1.0), failed=st.integers(0, 10))
def test_loss_lies_in_zero_to_one(loss: float, failed: int) -> None:
    """Excess TV is at most 1 per answered token and failed tokens count 1, so loss is within 0..1."""
    record = quiet_record(incident=step_fault())
    record.failed[50:], record.answered[50:] = failed, 10 - failed
    record.answered_tokens[50:] = 20.0 * (10 - failed)
    record.excess_tv_tokens[50:] = loss * record.answered_tokens[50:]
    quality = measure_episode(record, healthy_quality(record)).quality
    assert -1e-9 <= quality.loss <= 1 + 1e-9
    assert quality.loss == pytest.approx((failed + loss * (10 - failed)) / 10)


@given(st.permutations(range(2)))
def test_relabelling_slices_permutes_the_tuples_only(order: list[int]) -> None:
    """Scalar measures do not depend on the order of slices."""
    record = move_at(broken_record(), 77)
    record.excess_tv_tokens[:, 1] = 7.0
    names = ("violating", "runtime_violating", "answered_by")
    flat: tuple[str, ...] = (
        "offered",
        "answered",
        "failed",
        "shed",
        "slo_missed",
        "exposed",
        "exposed_in_flight",
    )
    flat += ("offered_tokens", "answered_tokens", "excess_tv_tokens", "useful_tokens")
    arrays = {name: getattr(record, name)[:, :, order] for name in names}
    arrays |= {name: getattr(record, name)[:, order] for name in flat}
    shuffled = replace(
        record,
        slices=tuple(record.slices[i] for i in order),
        table=record.table[:, order],
        hard_slices=record.hard_slices[order],
        **arrays,
    )
    one = measure_episode(record, healthy_quality(record))
    two = measure_episode(shuffled, healthy_quality(shuffled))
    values = [[m.value(episode) for m in MEASURES] for episode in (one, two)]
    np.testing.assert_allclose(values[0], values[1])
    assert two.quality.loss_by_slice == tuple(one.quality.loss_by_slice[i] for i in order)
