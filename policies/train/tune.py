"""Tuning of baselines: the varied parameters, and a seeded search for the settings with the least objective.

The search is Optuna's tree-structured Parzen estimator, kept in memory; the first trial is the unchanged
policy. Equal seed, trials and objective give equal settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.spec import Value, write_spec

if TYPE_CHECKING:
    import optuna  # of the extra ``rl``; the help of commands works without it

#: Random trials before the estimator takes over.
STARTUP = 8
#: Name under which the confidence of window alarms is varied; it follows ``@`` in a configuration's
#: text.
ALARM = "alarm_tail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Values from ``low`` to ``high``, evenly or evenly in the logarithm; whole numbers or any."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def suggest(self, trial: optuna.Trial, name: str) -> float:
        """A value to three significant digits, so that the text of a policy represents it exactly."""
        if self.whole:
            return float(trial.suggest_int(name, int(self.low), int(self.high), log=self.log))
        return float(f"{trial.suggest_float(name, self.low, self.high, log=self.log):.3g}")


_HEADROOM = {
    "fill_ratio": Range(low=0.75, high=1.0),
    "return_ratio": Range(low=0.5, high=0.9),
    "replan_s": Range(low=10.0, high=90.0, log=True),
}
_PACE = {
    "dwell_s": Range(low=20.0, high=600.0, log=True),
    "first_ratio": Range(low=0.05, high=1.0),
    "step_ratio": Range(low=0.1, high=1.0),
    "step_s": Range(low=5.0, high=60.0, log=True),
    "readmit_every_s": Range(low=5.0, high=90.0, log=True),
}
_WINDOW = {
    "window_s": Range(low=10.0, high=90.0, log=True),
    "min_samples": Range(low=6, high=40, whole=True),
    ALARM: Range(low=1e-4, high=0.1, log=True),
}
_SEQUENTIAL = {
    "budget": Range(low=0.3, high=300.0, log=True),
    "confidence": Range(low=0.8, high=0.99),
    "lowered_arl0": Range(low=50.0, high=5000.0, log=True),
}
_PROGRAM = {
    "capacity": Range(low=0.0, high=0.05),
    "away": Range(low=0.001, high=0.05, log=True),
    "move": Range(low=0.0005, high=0.05, log=True),
    "overload": Range(low=0.02, high=1.0, log=True),
    "fill_ratio": Range(low=0.75, high=1.0),
    "dwell_s": Range(low=10.0, high=300.0, log=True),
    "evidence_weight": Range(low=0.0, high=1.0),
    "load_tolerance": Range(low=0.05, high=0.3),
    "replan_s": Range(low=10.0, high=90.0, log=True),
}

#: The varied parameters of every tuned baseline.
SPACES: Mapping[str, Mapping[str, Range]] = {
    "breaker": {
        "consecutive_failures": Range(low=2, high=20, whole=True),
        "interval_s": Range(low=1.0, high=30.0, log=True),
        "base_ejection_s": Range(low=10.0, high=300.0, log=True),
        "max_ejection_ratio": Range(low=0.1, high=1.0),
    },
    "threshold": {**_WINDOW, **_HEADROOM},
    "hysteresis": {**_WINDOW, **_PACE, **_HEADROOM},
    "burn-rate": {
        "hour_s": Range(low=10.0, high=120.0, log=True),
        "least_observations": Range(low=4, high=30, whole=True),
        **_PACE,
        **_HEADROOM,
    },
    "sequential": {**_SEQUENTIAL, **_PACE, **_HEADROOM},
    "linear-program": {**_SEQUENTIAL, **_PROGRAM},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One setting and its result. configuration: "policy:settings@confidence"."""

    number: int
    configuration: str
    objective: float


def configuration_text(policy: str, values: Mapping[str, float]) -> str:
    """Text of the configuration with ``values``; the alarm's tail becomes the confidence behind ``@``."""
    settings: dict[str, Value] = {name: value for name, value in values.items() if name != ALARM}
    text = write_spec(policy, settings)
    if ALARM not in values:
        return text
    return f"{text}@{1.0 - values[ALARM]:.6g}"


def tune(
    policy: str,
    objective: Callable[[str], float],
    *,
    trials: int,
    seed: int,
    report: Callable[[Trial], None] = lambda _: None,
) -> tuple[Trial, ...]:
    """All trials in order, beginning with the unchanged ``policy``; ``report`` is called after each.

    Raises ValueError for a policy without a space, naming the policies that have one.
    """
    if policy not in SPACES:
        raise ValueError(f"tune: expected one of {', '.join(sorted(SPACES))}, got {policy!r}")
    import optuna

    # An interruption is not a failed trial, and the caller reports errors.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    done = [Trial(number=0, configuration=policy, objective=objective(policy))]
    report(done[0])

    def run(trial: optuna.Trial) -> float:
        values = {name: space.suggest(trial, name) for name, space in SPACES[policy].items()}
        configuration = configuration_text(policy, values)
        done.append(
            Trial(number=trial.number + 1, configuration=configuration, objective=objective(configuration))
        )
        report(done[-1])
        return done[-1].objective

    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
    study = optuna.create_study(direction="minimize", sampler=sampler)
    study.optimize(run, n_trials=max(0, trials - 1))
    return tuple(done)


def best(trials: tuple[Trial, ...], count: int) -> tuple[Trial, ...]:
    """The ``count`` trials with the least objective, each setting once; of equals the earlier first."""
    ordered = sorted(trials, key=lambda trial: (trial.objective, trial.number))
    once = {trial.configuration: trial for trial in reversed(ordered)}
    return tuple(sorted(once.values(), key=lambda trial: (trial.objective, trial.number))[:count])
