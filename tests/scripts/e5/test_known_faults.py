"""Known-law CUSUM against simulation, and the floors of the informed reference."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from controller.detect.calibration.known_law import (
    KnownLaw,
    binned_law,
    delay,
    lognormal_law,
    mixed,
    run_length,
    threshold,
)
from controller.detect.calibration.laws import Empirical, Ones
from controller.detect.calibration.simulate import LawChange, delays, false_alarms
from controller.detect.streams.classical import BinnedCusum, rate_cusum
from scripts.e5.known_faults import known_faults
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import load_scenario
from tests.support.fleets.synthetic import scenario_document, write_world
from tests.support.run_lengths import arl_at_least, arl_at_most

ARL0 = 2000.0


def drawn(seed: int) -> KnownLaw:
    """A binned law of exponential samples with a tripled mean."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return binned_law(rng.exponential(1.0, 40), rng.exponential(3.0, 40))


@pytest.mark.parametrize("seed", [1, 2])
def test_run_length_and_delay_are_those_of_simulation(seed: int) -> None:
    """The linear system gives the run length and the late delay of simulated streams."""
    law = drawn(seed)
    values = np.arange(law.before.size, dtype=np.float64)
    detector = BinnedCusum(edges=tuple((values[1:] - 0.5).tolist()), log_ratio=tuple(law.log_ratio.tolist()))
    level = threshold(law, ARL0)
    before, after = (Empirical(values=values, weights=weights) for weights in (law.before, law.after))
    alarms = false_alarms(detector, level, before, streams=400, samples=20_000, seed=seed)
    assert arl_at_least(alarms, 0.999) < ARL0 < arl_at_most(alarms, 0.999)
    found = delays(detector, level, LawChange(before, after, 500), runs=4000, seed=seed)
    assert abs(delay(law, ARL0) - found.mean) < 5.0 * found.standard_error + 0.02 * found.mean


def test_rates_are_a_known_law_of_two_values() -> None:
    """Bernoulli streams have the delay of CUSUM with known rates."""
    law = KnownLaw(before=np.array([0.99, 0.01]), after=np.array([0.8, 0.2]))
    level = threshold(law, ARL0)
    found = delays(
        rate_cusum(0.01, 0.2), level, LawChange(Ones(rate=0.01), Ones(rate=0.2), 500), runs=4000, seed=3
    )
    assert abs(delay(law, ARL0) - found.mean) < 5.0 * found.standard_error + 0.03 * found.mean


def test_a_rarer_false_alarm_costs_delay_and_lorden_is_the_slope() -> None:
    """Threshold and delay grow with the ARL0; late in the scale by its logarithm over the divergence."""
    law = drawn(4)
    grid = [1e3, 1e5, 1e7, 1e9]
    levels, found = [threshold(law, arl0) for arl0 in grid], [delay(law, arl0) for arl0 in grid]
    assert levels == sorted(levels)
    assert found == sorted(found)
    assert (found[3] - found[2]) * law.information == pytest.approx(math.log(100.0), rel=0.05)
    assert run_length(law, levels[2]) == pytest.approx(1e7, rel=0.02)


def test_laws_that_do_not_overlap_are_told_by_one_unit() -> None:
    """Drift far from the healthy one is known with the first observation, whatever the ARL0."""
    rng = np.random.Generator(np.random.PCG64(5))
    law = lognormal_law(1e-4 * rng.lognormal(0.0, 0.2, 40), 1e-1 * rng.lognormal(0.0, 0.2, 40))
    assert delay(law, 1e9) == pytest.approx(1.0, abs=1e-6)
    assert mixed([law, law]).information == pytest.approx(law.information)


def told_of(folder: Path, **fault: object) -> CompiledScenario:
    """Notices for the synthetic world with one fault at 47 s."""
    folder.mkdir(exist_ok=True)
    row = {"name": "wrong", "onset_s": 47.0, **fault}
    return load_scenario(write_world(folder, scenario_document(horizon_s=240.0, faults=[row])))


def test_nothing_is_known_before_its_floor(tmp_path: Path) -> None:
    """Every notice comes at least one probe interval and one tick after the onset, on broken slices alone."""
    scenario = told_of(tmp_path, kind="requantise", target={"kernel": "bf16"}, condition="requantise-w4")
    notices = known_faults(scenario)
    lower_bound_s = 1.0 / scenario.telemetry.probes_per_s + scenario.tick_s
    assert notices.from_at_s.size > 0
    assert (notices.from_at_s >= 47.0 + lower_bound_s).all()
    assert (notices.until_at_s >= scenario.horizon_s).all()
    condition = scenario.tables[int(notices.kernel[0])].conditions.index("requantise-w4")
    broken = scenario.violating[notices.kernel[0], condition]
    assert np.array_equal(notices.slices.any(axis=0), broken)


def test_one_replica_is_told_as_one_replica_and_all_as_the_kernel(tmp_path: Path) -> None:
    """A fault of a replica names the replica, the same fault of the kernel names the kernel, sooner."""
    common = {"kind": "requantise", "condition": "requantise-w4"}
    scenario = told_of(tmp_path / "one", target={"kernel": "bf16", "replica": 0}, **common)
    one = known_faults(scenario)
    all_ = known_faults(told_of(tmp_path / "all", target={"kernel": "bf16"}, **common))
    assert tuple(one.replica) == scenario.plans[0].replicas
    assert one.kernel.tolist() == [-1]
    assert (all_.kernel >= 0).all()
    assert all_.from_at_s.min() <= one.from_at_s.min()


def test_a_crash_is_known_at_the_next_tick(tmp_path: Path) -> None:
    """Discovery reports a dead replica: an interval of one tick, and one tick."""
    scenario = told_of(tmp_path, kind="crash", target={"kernel": "bf16", "replica": 0})
    assert known_faults(scenario).from_at_s.tolist() == [47.0 + 2.0 * scenario.tick_s]


@pytest.mark.parametrize("kind", ["hang", "http_errors"])
def test_an_idle_kernel_is_known_by_its_probes(tmp_path: Path, kind: str) -> None:
    """The known-good kernel gets no requests, and every probe of it shows the fault."""
    dose = {"dose": 0.5} if kind == "http_errors" else {}
    scenario = told_of(tmp_path, kind=kind, target={"kernel": "fp32"}, **dose)
    notices = known_faults(scenario)
    assert scenario.fair_rps[notices.kernel].max(initial=0.0) == 0.0
    assert notices.from_at_s.size > 0
    assert (notices.from_at_s < scenario.horizon_s).all()


def test_no_fault_no_notice(tmp_path: Path) -> None:
    """A scenario without a fault, or with the neutral dose, gives no notice."""
    scenario = told_of(tmp_path, kind="slow", target={"kernel": "bf16"}, dose=1.0)
    assert known_faults(scenario).from_at_s.size == 0
