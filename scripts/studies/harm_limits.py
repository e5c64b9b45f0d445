"""How often limits of harm miss the truth, and how often they pass a policy, where gains or harms are rare.

Losses of twenty seeds (useful tokens per offered one below those of a fleet whose policy never moves traffic)
are drawn from populations with a known mean, and each method gives the limit that a certificate over
fourteen scenarios would hold. A limit below the mean misses; one within the threshold of M-harm passes.

``python -m scripts.studies.harm_limits docs`` writes the table of docs/meta-contract.md, in a minute.

No assumption-free method can serve here, betting (Waudby-Smith and Ramdas, J. R. Statist. Soc. B 86,
2024) and empirical Bernstein (Maurer and Pontil 2009) included: if nothing is lost in n seeds, a loss of 1
that strikes with probability p is unseen with (1 - p)^n, so no such limit is below 1 - tail^(1/n)
(``assumption_free_least``).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts.rng import stream
from contracts.scoring.intervals import Bound, capped_limits, simultaneous_limits
from contracts.units import CONFIDENCE
from scripts.output import fill, table
from scripts.train.certificates import PAGE

MARK, LEAST_MARK = "harm-limits", "harm-limits-without-assumption"
#: Of the shipped M-harm, and the scenarios of a certificate.
THRESHOLD, SEEDS, SCENARIOS = 0.005, 20, 14
#: Certificates drawn of each population, each with a limit per scenario.
CERTIFICATES = 1500

Limits = Callable[[NDArray[np.float64]], tuple[Bound, ...]]
METHODS: dict[str, Limits] = {
    "Student": lambda losses: simultaneous_limits(losses, upper=True),
    "no gain counts": lambda losses: simultaneous_limits(np.maximum(losses, 0.0), upper=True),
    "capped": lambda losses: simultaneous_limits(np.maximum(losses, -THRESHOLD), upper=True),
    "capped, Hall": lambda losses: capped_limits(losses, THRESHOLD),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LossPopulation:
    """Losses, as shares: ``gain`` with probability ``gained``, ``harm`` with ``harmed``, else none; spread:
    standard deviation of the logarithm of a harm, whose mean stays (0: all alike).
    """

    gained: float = 0.0
    gain: float = 0.0
    harmed: float = 0.0
    harm: float = 0.0
    spread: float = 0.0

    @property
    def mean(self) -> float:
        """The truth: no limit may be below it."""
        return self.harmed * self.harm - self.gained * self.gain

    def draw(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Losses [SEEDS, SCENARIOS]."""
        place, shape = rng.random((SEEDS, SCENARIOS)), (SEEDS, SCENARIOS)
        factor = np.exp(rng.normal(0.0, self.spread, shape) - self.spread**2 / 2.0)
        harms = np.where(place >= 1.0 - self.harmed, self.harm * factor, 0.0)
        return np.where(place < self.gained, -self.gain, harms)


POPULATIONS: dict[str, LossPopulation] = {
    "gains of 30 % in a tenth": LossPopulation(gained=0.1, gain=0.3),
    "gains of 50 % in a twentieth": LossPopulation(gained=0.05, gain=0.5),
    "gains of 10 % in a fifth": LossPopulation(gained=0.2, gain=0.1),
    "harm of 0.5 % everywhere, log-normal (0.5)": LossPopulation(harmed=1.0, harm=0.005, spread=0.5),
    "harm of 0.5 % everywhere, log-normal (1)": LossPopulation(harmed=1.0, harm=0.005, spread=1.0),
    "harm of 1 % in a half": LossPopulation(harmed=0.5, harm=0.01),
    "harm of 1 % in a half, log-normal (1)": LossPopulation(harmed=0.5, harm=0.01, spread=1.0),
    "harm of 2.5 % in a fifth": LossPopulation(harmed=0.2, harm=0.025),
    "harm of 5 % in a tenth": LossPopulation(harmed=0.1, harm=0.05),
    "harm of 50 % in a hundredth": LossPopulation(harmed=0.01, harm=0.5),
    "gains of 5 % in a twentieth, harm of 1.5 % in a half": LossPopulation(
        gained=0.05, gain=0.05, harmed=0.5, harm=0.015
    ),
    "gains of 30 % in a tenth, harm of 7 % in a half": LossPopulation(
        gained=0.1, gain=0.3, harmed=0.5, harm=0.07
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFigures:
    """missed: limits below the truth; passed: limits within the threshold; both of ``n``."""

    missed: int
    passed: int
    n: int


def tried(population: LossPopulation, method: str, certificates: int = CERTIFICATES) -> LimitFigures:
    """Figures of ``method`` on ``certificates`` draws; every method gets the same ones."""
    rng = stream(6, "harm-limits")
    found = [bound.limit for _ in range(certificates) for bound in METHODS[method](population.draw(rng))]
    missed = sum(limit < population.mean - 1e-12 for limit in found)
    return LimitFigures(missed=missed, passed=sum(limit <= THRESHOLD for limit in found), n=len(found))


def nominal() -> float:
    """Share of limits that may miss, so that all limits of a certificate hold at once."""
    return (1.0 - CONFIDENCE) / SCENARIOS


def assumption_free_least(n: int) -> float:
    """Least valid limit for arbitrary losses up to 1, after ``n`` seeds without any."""
    return 1.0 - float(nominal() ** (1.0 / n))


def seeds_without_assumption() -> int:
    """Seeds of each scenario, none with a loss, from which such a limit could pass."""
    return math.ceil(math.log(nominal()) / math.log(1.0 - THRESHOLD))


def lines(certificates: int = CERTIFICATES) -> list[str]:
    """The table: of each population and method the share of limits that miss, and that pass, in percent."""
    head = ["losses", "mean, %", *(f"{method}: missed, % (passes, %)" for method in METHODS)]
    rows = [
        [name, f"{100.0 * one.mean:.1f}", *(_cell(tried(one, method, certificates)) for method in METHODS)]
        for name, one in POPULATIONS.items()
    ]
    return table(head, rows, numbers=True)


def _cell(found: LimitFigures) -> str:
    """The share that misses, with two standard errors."""
    missed = found.missed / found.n
    error = 200.0 * math.sqrt(missed * (1.0 - missed) / found.n)
    return f"{100.0 * missed:.2f} ± {error:.2f} ({100.0 * found.passed / found.n:.0f})".replace("-0.0", "0.0")


def least_lines() -> list[str]:
    """Limits without an assumption, and the seeds that they would need."""
    least, seeds = assumption_free_least(SEEDS), seeds_without_assumption()
    return [
        f"For losses of up to everything it is at least {least:.2f} after {SEEDS} seeds in which nothing"
        f" is lost at all, and comes within {THRESHOLD:g} after {seeds:,}."
    ]


if __name__ == "__main__":
    fill(
        Path(sys.argv[1] if len(sys.argv) > 1 else "docs") / PAGE, {MARK: lines(), LEAST_MARK: least_lines()}
    )
