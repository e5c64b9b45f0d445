"""Limits of harm on populations with known means: they hold, and gains do not widen them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from contracts.documents import MetaContract
from contracts.loading.loader import load_as
from contracts.loading.shipped import SHIPPED_META
from contracts.loading.uris import resolve_uri
from scripts.studies.harm_limits import (
    LEAST_MARK,
    MARK,
    POPULATIONS,
    SEEDS,
    THRESHOLD,
    LossPopulation,
    assumption_free_least,
    least_lines,
    nominal,
    seeds_without_assumption,
    tried,
)
from scripts.train.certificates import PAGE

CERTIFICATES = 120
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", [name for name in POPULATIONS if "harm" not in name])
def test_a_policy_that_only_gains_passes(name: str) -> None:
    """If nothing is ever lost every limit is within the threshold; Student's t refuses most of them."""
    population = POPULATIONS[name]
    ours, student = (tried(population, method, CERTIFICATES) for method in ("capped, Hall", "Student"))
    assert (ours.passed, ours.missed) == (ours.n, 0)
    assert student.passed < 0.5 * student.n


@pytest.mark.parametrize(
    "population",
    [
        LossPopulation(harmed=0.5, harm=0.01),
        LossPopulation(gained=0.1, gain=0.3, harmed=0.5, harm=0.07),
        LossPopulation(gained=0.05, gain=0.05, harmed=0.5, harm=0.015),
        LossPopulation(gained=0.5, gain=0.005, harmed=0.5, harm=0.015),
    ],
)
def test_harm_that_is_not_rare_is_not_missed(population: LossPopulation) -> None:
    """Limits miss a mean harm no more often than all of a certificate may together, with gains or without."""
    found = tried(population, "capped, Hall", CERTIFICATES)
    slack = 3.0 * math.sqrt(nominal() / found.n)
    assert found.missed / found.n <= nominal() + slack


@pytest.mark.parametrize("name", [name for name in POPULATIONS if "harm" in name])
def test_no_harm_is_missed_oftener_than_by_student(name: str) -> None:
    """For any losses, however rare, the limit of earlier certificates missed at least as often."""
    population = POPULATIONS[name]
    ours, student = (tried(population, method, CERTIFICATES) for method in ("capped, Hall", "Student"))
    assert ours.missed <= student.missed + 3.0 * math.sqrt(nominal() * ours.n)


def test_twenty_seeds_show_no_half_percent_without_an_assumption() -> None:
    """A limit valid for any losses up to 1 is far above the threshold after twenty seeds."""
    assert assumption_free_least(SEEDS) > 40.0 * THRESHOLD
    assert assumption_free_least(seeds_without_assumption()) <= THRESHOLD
    assert assumption_free_least(seeds_without_assumption() - 1) > THRESHOLD


def test_the_threshold_is_that_of_the_shipped_clause() -> None:
    """The study uses the certificate's threshold."""
    meta = load_as(MetaContract, resolve_uri(SHIPPED_META, "tests"))
    assert {c.metric: c.threshold for c in meta.spec.clauses}["useful_loss_ratio"] == THRESHOLD


def test_the_page_has_every_population() -> None:
    """The page's table has every population, and the text below it is current."""
    text = (ROOT / "docs" / PAGE).read_text(encoding="utf-8")
    rows, least = (
        text.split(f"<!-- begin {mark} -->")[1].split("<!-- end")[0].strip().splitlines()
        for mark in (MARK, LEAST_MARK)
    )
    assert [line.split("|")[1].strip() for line in rows[2:]] == list(POPULATIONS)
    assert least == least_lines()
