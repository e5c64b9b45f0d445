"""The window detector."""

from __future__ import annotations

import numpy as np

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import Source
from controller.detect.detector import AlarmState
from controller.detect.sums import COUNT
from controller.detect.window import WindowDetector
from tests.support.fleets.builders import Clause, make_contract, make_layout

LAYOUT = make_layout(kernels=1, slices=1, per_kernel=1)
ALWAYS = np.array([True])


def contract(clause: Clause, **changes: object) -> CompiledContract:
    """Contract of one clause."""
    return make_contract(LAYOUT, (clause,), **changes)


def cell(count: float, total: float = 0.0, squares: float = 0.0, over: float = 0.0) -> np.ndarray:
    """Sums of one cell."""
    return np.array([count, total, squares, over]).reshape(1, 1, 1, 1, 4)


def updates(
    detector: WindowDetector, windows: list[np.ndarray], judged_by: CompiledContract
) -> list[AlarmState]:
    """Alarm states after each of ``windows``."""
    state, verdicts = detector.initial(1, 1, judged_by), []
    for sums in windows:
        verdict, state = detector.update(state, sums, ALWAYS, judged_by)
        verdicts.append(verdict)
    return verdicts


def test_too_few_units_are_carried_until_they_suffice() -> None:
    """Windows below min_samples are carried, and the window that completes them is judged on all units."""
    judged_by = contract(Clause(threshold=0.1), min_samples=10)
    window = cell(4, 4 * 0.5, 4 * 0.25)
    verdicts = updates(WindowDetector(), [window, window, window], judged_by)
    assert [bool(v.alarm.item()) for v in verdicts] == [False, False, True]
    assert verdicts[2].judged[..., COUNT].item() == 12.0


def test_carried_units_expire() -> None:
    """Carried units older than ``carry_windows`` windows are never judged."""
    judged_by = contract(Clause(threshold=0.1), min_samples=10)
    window = cell(4, 4 * 0.5, 4 * 0.25)
    verdicts = updates(WindowDetector(carry_windows=2), [window] * 6, judged_by)
    assert not any(bool(v.alarm.item()) for v in verdicts)


def test_zero_tolerance_alarms_before_the_window_closes() -> None:
    """A hard rate clause with limit 0 is in alarm at the first unit over its threshold."""
    judged_by = contract(Clause(rate_limit=0.0))
    detector = WindowDetector()
    verdict, _ = detector.update(
        detector.initial(1, 1, judged_by), cell(1, over=1.0), np.array([False]), judged_by
    )
    assert bool(verdict.alarm.item())
    assert not bool(verdict.inside.item())


def test_alarm_on_traffic_ends_without_traffic() -> None:
    """A latency alarm expires after ``expiry_windows`` empty windows; a probe alarm does not."""
    empty = cell(0)
    for source, remains in ((Source.LATENCY, False), (Source.PROBE, True)):
        judged_by = contract(Clause(source=source, rate_limit=0.01, hard=False))
        verdicts = updates(WindowDetector(expiry_windows=3), [cell(50, over=50.0)] + [empty] * 3, judged_by)
        assert bool(verdicts[0].alarm.item())
        assert bool(verdicts[2].alarm.item())
        assert bool(verdicts[3].alarm.item()) is remains


def test_recertification_adds_up_evidence_since_the_alarm() -> None:
    """Clean windows that are too short alone recertify together, and only those after the alarm count."""
    judged_by = contract(Clause(rate_limit=0.05, hard=False))
    clean = cell(30)
    verdicts = updates(WindowDetector(), [cell(30, over=20.0), clean, clean], judged_by)
    assert [bool(v.alarm.item()) for v in verdicts] == [True, False, False]
    assert [bool(v.inside.item()) for v in verdicts] == [False, False, True]  # 0 of 60, not 0 of 30


def test_clauses_of_other_slices_and_offline_clauses_never_alarm() -> None:
    """A clause that does not apply to the slice, or is judged offline, never alarms."""
    bad = cell(50, 50.0, 50.0, 50.0)
    layout = make_layout(kernels=1, slices=2, per_kernel=1)
    offline = make_contract(layout, (Clause(source=Source.OFFLINE), Clause(slices=(1,))))
    verdict = updates(WindowDetector(), [np.broadcast_to(bad, (1, 1, 2, 2, 4)).copy()], offline)[0]
    assert verdict.alarm[0, 0].tolist() == [[False, False], [False, True]]
