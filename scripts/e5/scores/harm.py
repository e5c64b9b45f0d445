"""Harm: what a configuration takes from traffic that would have been served without any move.

Per scenario and configuration the paired difference to ``fixed-bare`` (same scenario, same seed), in
percentage points, of useful tokens per offered token and of failed or exposed requests per offered one, each
with its one-sided 95 % limit. The limits of a configuration hold together over all
scenarios of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from contracts.loading.files import plain
from contracts.scoring.intervals import Bound, simultaneous_limits
from contracts.scoring.measure_table import MEASURES
from contracts.units import CONFIDENCE
from scripts.e5.scores.results import Episodes

#: The configuration that never moves traffic; harm is measured against it.
HARM_TO = "fixed-bare"
#: Measures of harm, and whether more of it is worse.
HARM: dict[str, bool] = {"useful_ratio": False, "failed_or_exposed_ratio": True}
_MEASURES = {measure.name: measure for measure in MEASURES}


def harm(episodes: Episodes) -> dict[str, Any]:
    """The section ``harm`` of ``e5.json``: every configuration of the run but ``HARM_TO`` itself.

    If there is nothing to compare with, ``policies`` is empty and ``note`` says why.
    """
    header = {"to": HARM_TO, "unit": "percentage points", "confidence": CONFIDENCE}
    if HARM_TO not in episodes.policies:
        return header | {"note": f"{HARM_TO} is not among the configurations", "policies": {}}
    others = [policy for policy in episodes.policies if policy != HARM_TO]
    return header | {"note": "", "policies": {policy: _of(episodes, policy) for policy in others}}


def _of(episodes: Episodes, policy: str) -> dict[str, Any]:
    """Bounds of ``policy`` by measure and scenario, and the worst scenario of each measure."""
    found = {name: _bounds(episodes, policy, name, upper=upper) for name, upper in HARM.items()}
    return {
        "scenarios": {
            scenario: {name: plain(asdict(bounds[scenario])) for name, bounds in found.items()}
            for scenario in episodes.scenarios
        },
        "worst": {name: _worst(bounds, max if HARM[name] else min) for name, bounds in found.items()},
    }


def _bounds(episodes: Episodes, policy: str, name: str, *, upper: bool) -> dict[str, Bound]:
    """Bound of each scenario, in percentage points."""
    measure = _MEASURES[name]
    own, still = (episodes.matrix(each, episodes.scenarios, measure) for each in (policy, HARM_TO))
    bounds = simultaneous_limits(100.0 * (own - still), upper=upper)
    return dict(zip(episodes.scenarios, bounds, strict=True))


def _worst(bounds: dict[str, Bound], pick: Callable[..., str]) -> dict[str, Any]:
    """The scenario that ``pick`` chooses by its mean, with its bound."""
    known = {name: bound for name, bound in bounds.items() if bound.n}
    if not known:
        return {"scenario": None, **plain(asdict(next(iter(bounds.values()))))}
    name = pick(known, key=lambda scenario: known[scenario].mean)
    return {"scenario": name, **plain(asdict(known[name]))}
