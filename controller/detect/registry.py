"""Registry of plug-in detectors by name: a policy uses one with ``policy:detector=NAME``.

The project's own detectors need no name, because each of its policies states its detector.

A detector may be a single function, which ``judging`` registers. It decides which completed windows beyond a
clause's limit raise an alarm. Collecting, carrying, recovery and the alarms of zero-tolerance clauses are
those of the window detector.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.errors import PluginError
from contracts.plugins import Parameter, Registry
from controller.detect.detector import Detector
from controller.detect.sums import COUNT, OVER, TOTAL, Sums, excess_of_sums, significant
from controller.detect.window import WindowDetector
from controller.fleet import FleetSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorKind:
    """One registered detector.

    make: builds the detector for a fleet from all parameters. parameters: numbers with their defaults; the
    text form of a policy sets them together with its own.
    """

    make: Callable[[FleetSetup, Mapping[str, float]], Detector]
    description: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


#: Every registered detector by name; plug-ins are registered when their name is first looked up.
DETECTORS: Registry[DetectorKind] = Registry("selvage_fleet.detectors")


def register_detector(name: str, kind: DetectorKind) -> None:
    """Register ``kind`` as ``detector=name``; ValueError where the name is taken."""
    DETECTORS.register(name, kind)


def detector_kind(name: str) -> DetectorKind:
    """The detector ``name``; ValueError lists the known ones."""
    if name not in DETECTORS:
        raise ValueError(f"unknown detector {name!r}; known: {', '.join(DETECTORS.known()) or 'none'}")
    return DETECTORS[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class BeyondLimit:
    """Completed windows whose estimate lies beyond their clause's limit, n of them."""

    count: NDArray[np.float64]  # [n], observations
    value: NDArray[np.float64]  # [n], their mean in the metric's unit; rate clause: share over the threshold
    excess: NDArray[np.float64]  # [n], distance beyond the limit, relative to it, > 0
    significant: NDArray[np.bool_]  # [n], beyond chance at the contract's confidence


#: Function from windows and settings by name to the windows that raise an alarm, bool [n].
Judge = Callable[[BeyondLimit, Mapping[str, float]], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingDetector(WindowDetector):
    """A window detector in which ``judge`` decides which windows raise an alarm."""

    name: str
    judge: Judge
    settings: Mapping[str, float] = field(default_factory=dict)

    def _broken(
        self, judged: Sums, beyond: NDArray[np.bool_], contract: CompiledContract
    ) -> NDArray[np.bool_]:
        """Decision of ``judge`` on the windows ``beyond``; PluginError for a wrong shape or dtype."""
        windows = _beyond_limit(judged, beyond, contract)
        broken = np.asarray(self.judge(windows, self.settings))
        if broken.shape != windows.count.shape or broken.dtype != np.bool_:
            expected = f"{len(windows.count)} of bool, got {list(broken.shape)} of {broken.dtype}"
            raise PluginError(f"detector {self.name!r}: expected {expected}; mend its function")
        return broken


def _beyond_limit(judged: Sums, beyond: NDArray[np.bool_], contract: CompiledContract) -> BeyondLimit:
    picked, clause = judged[beyond], np.nonzero(beyond)[-1]
    counted = np.where(contract.is_rate[clause], picked[:, OVER], picked[:, TOTAL])
    return BeyondLimit(
        count=picked[:, COUNT],
        value=counted / np.maximum(picked[:, COUNT], 1.0),
        excess=excess_of_sums(judged, contract)[beyond],
        significant=significant(judged, beyond, contract, contract.alarm_confidence, above=True),
    )


def judging(name: str, description: str, **parameters: Parameter) -> Callable[[Judge], Judge]:
    """Register the decorated function as the detector ``name`` with ``parameters``.

    The function gets the windows ``BeyondLimit`` and the settings by name. ValueError where the name is
    taken.
    """

    def keep(judge: Judge) -> Judge:
        kind = DetectorKind(
            make=lambda _, values: JudgingDetector(
                name=name, judge=judge, settings={key: values[key] for key in parameters}
            ),
            parameters=parameters,
            description=description,
        )
        register_detector(name, kind)
        return judge

    return keep
