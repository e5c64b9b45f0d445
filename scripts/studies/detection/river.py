"""river's ADWIN, Page-Hinkley and KSWIN on the streams our detectors are measured on, at equal measured ARL0.

Page-Hinkley is computed by our code, which alarms where river's does (tested). ADWIN and KSWIN are river's
code: ADWIN's ``delta`` is bisected on counted alarms; KSWIN's p-values are recorded once and its ``alpha``
read off them, mixing the two levels next to the wanted ARL0, because a Kolmogorov-Smirnov p-value of 30
observations takes few values. Both are two-sided and estimate the baseline, which is their purpose.

``synthetic_figures`` has every detector, those of river where it is installed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.rng import stream
from controller.detect.calibration.laws import ObservationLaw
from scripts.studies.detection.cases import (
    ARL0,
    CHANGE,
    SEED,
    ChangeCase,
    Figures,
    all_figures,
    changes,
    yardstick,
)

Floats = NDArray[np.float64]
_ADWIN_MOST = 4000  # observations followed after the change
_KSWIN_UNITS = 120_000
_KSWIN_CHANGE = 200  # its memory is a window of 100 observations
_KSWIN_RUNS = 100
_KSWIN_MOST = 300  # observations followed after the change
_REFRACTORY = 70  # observations until KSWIN's window is full again after an alarm


def river_missing() -> str:
    """Why there is no comparison; empty if there is one."""
    return "" if find_spec("river") else "river is not installed: pip install river"


def river_figures(changes: tuple[ChangeCase, ...], known: list[Figures]) -> list[Figures]:
    """ADWIN (both clocks) and KSWIN on every stream of one family."""
    rows: list[Figures] = []
    for clock in (1, 32):
        rows += _adwin_figures(clock, changes, known)
    return rows + _kswin_figures(changes, known)


def _draw(law: ObservationLaw, observations: int, *names: str | int) -> list[float]:
    values: list[float] = law.source(stream(SEED, "river", *names), 1)(observations)[:, 0].tolist()
    return values


def _adwin(delta: float, clock: int) -> Any:
    return import_module("river.drift").ADWIN(delta=delta, clock=clock)


def _first_alarm(detector: Any, values: list[float]) -> int:
    """Observations until the first alarm, 0 if there is none."""
    for index, value in enumerate(values):
        detector.update(value)
        if detector.drift_detected:
            return index + 1
    return 0


def _adwin_arl(delta: float, clock: int, law: ObservationLaw, observations: int) -> float:
    detector, count = _adwin(delta, clock), 0
    for value in _draw(law, observations, "adwin_arl", clock):
        detector.update(value)
        if detector.drift_detected:
            count += 1
            detector = _adwin(delta, clock)
    return observations / max(count, 1)


def _adwin_figures(clock: int, changes: tuple[ChangeCase, ...], known: list[Figures]) -> list[Figures]:
    law = changes[0].before
    low, high = 1e-4, 0.99999
    for _ in range(9):
        middle = 1.0 - math.sqrt((1.0 - low) * (1.0 - high)) if low > 0.5 else math.sqrt(low * high)
        low, high = (low, middle) if _adwin_arl(middle, clock, law, 1_000_000) < ARL0 else (middle, high)
    delta = low
    arl = _adwin_arl(delta, clock, law, 3_000_000)
    rows = []
    for change, one in zip(changes, known, strict=True):
        found = _delays(lambda: _adwin(delta, clock), change, CHANGE, 1500)
        rows.append(_row(f"river ADWIN clock {clock}", change, _Point(arl, delta), found, one))
    return rows


def _delays(make: Callable[[], Any], change: ChangeCase, place: int, runs: int) -> Floats:
    """Delays of the runs without an earlier alarm."""
    found = []
    for run in range(runs):
        before = _draw(change.before, place, "before", run)
        after = _draw(change.after, _ADWIN_MOST, "after", run)
        detector = make()
        if not _first_alarm(detector, before):
            found.append(_first_alarm(detector, after) or _ADWIN_MOST)
    return np.array(found, dtype=np.float64)


class _Point(NamedTuple):
    """Operating point of a detector of river: its threshold, and the measured ARL0."""

    arl: float
    threshold: float


def _row(
    name: str,
    change: ChangeCase,
    point: _Point,
    found: Floats,
    known: Figures,
    mean: float | None = None,
    most: int = _ADWIN_MOST,
) -> Figures:
    delay = float(found.mean()) if mean is None else mean
    error = float(found.std() / math.sqrt(found.size))
    return Figures(
        detector=name,
        stream=change.name,
        arl0_declared=ARL0,
        arl0_measured=point.arl,
        threshold=point.threshold,
        delay=delay,
        delay_error=error,
        delay_worst=math.nan,
        ratio=delay / known.delay,
        missed_rate=float((found >= most).mean()),
    )


def _p_values(values: list[float]) -> Floats:
    """KSWIN's p-value after each unit, 1 where it does not test; no alarm resets it."""
    detector: Any = import_module("river.drift").KSWIN(alpha=1e-300, seed=SEED)
    found = np.ones(len(values))
    for index, value in enumerate(values):
        detector.update(value)
        found[index] = getattr(detector, "p_value", 1.0) if detector.n >= detector.window_size else 1.0
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Levels:
    """Two levels of alpha around ARL0, their run lengths, and the weight of the first."""

    alpha: tuple[float, float]
    arl: tuple[float, float]
    weight: float


def _kswin_levels(law: ObservationLaw) -> _Levels:
    """Run lengths of each attainable alpha; neighbours of ARL0, mixed so that the mean is ARL0."""
    p_values = _p_values(_draw(law, _KSWIN_UNITS, "kswin_arl"))
    levels = np.unique(p_values)
    arls = np.array([_run_length(p_values, float(level)) for level in levels[:400]])
    above = int(np.flatnonzero(arls >= ARL0)[-1]) if (arls >= ARL0).any() else 0
    below = min(above + 1, arls.size - 1)
    long, short = float(arls[above]), float(arls[below])
    weight = 1.0 if long <= short else min(max((ARL0 - short) / (long - short), 0.0), 1.0)
    return _Levels(alpha=(float(levels[above]), float(levels[below])), arl=(long, short), weight=weight)


def _run_length(p_values: Floats, alpha: float) -> float:
    count, free = 0, 0
    for index in np.flatnonzero(p_values <= alpha):
        if index >= free:
            count, free = count + 1, int(index) + _REFRACTORY
    return float(p_values.size / max(count, 1))


def _kswin_figures(changes: tuple[ChangeCase, ...], known: list[Figures]) -> list[Figures]:
    levels = _kswin_levels(changes[0].before)
    arl = levels.weight * levels.arl[0] + (1.0 - levels.weight) * levels.arl[1]
    rows = []
    for change, one in zip(changes, known, strict=True):
        pairs = np.array([_kswin_delays(change, run, levels.alpha) for run in range(_KSWIN_RUNS)])
        mean = float(levels.weight * pairs[:, 0].mean() + (1.0 - levels.weight) * pairs[:, 1].mean())
        rows.append(
            _row("river KSWIN", change, _Point(arl, levels.alpha[0]), pairs[:, 0], one, mean, _KSWIN_MOST)
        )
    return rows


def _kswin_delays(change: ChangeCase, run: int, alphas: tuple[float, float]) -> list[float]:
    """Delay at both levels; a run without an alarm counts its length, which flatters KSWIN."""
    length = _KSWIN_MOST
    values = _draw(change.before, _KSWIN_CHANGE, "kswin_before", run)
    values += _draw(change.after, length, "kswin_after", run)
    tail = _p_values(values)[_KSWIN_CHANGE:]
    raised = [np.flatnonzero(tail <= alpha) for alpha in alphas]
    return [float(hits[0] + 1) if hits.size else float(length) for hits in raised]


def synthetic_figures() -> list[Figures]:
    """Every detector on every synthetic stream."""
    rows: list[Figures] = []
    for family in ("normal", "ones"):
        rows += all_figures(family)
        if not river_missing():
            streams = changes(family)
            rows += river_figures(streams, [yardstick(change) for change in streams])
    return rows
