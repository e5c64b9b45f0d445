"""The fixed suites: unchanged since they were registered, and disjoint from the training episodes."""

from __future__ import annotations

import json

import pytest

from contracts.loading.shipped import E5_BASE
from contracts.loading.uris import resolve_uri
from scripts.e5.run.jobs import compiled
from scripts.e5.suite import load_suite
from scripts.e5.suite_registry import REGISTRY, SUITES, entries, overlap, registry, suite_path
from simulator.env.base import load_base
from simulator.env.randomise import draw_episode
from simulator.env.space import RESERVED, EpisodeSpace, Split

HELD_OUT = ("e5-heldout", "e5-heldout-2", "e5-heldout-3", "e5-heldout-4", "e5-heldout-5")


def test_registered_suites_are_unchanged() -> None:
    """The suites' files are those registered before policies were trained."""
    text = resolve_uri(REGISTRY, "tests").read_text(encoding="utf-8")
    assert json.loads(text) == registry()


@pytest.mark.parametrize("name", HELD_OUT)
def test_every_fault_of_a_held_out_suite_is_of_a_family_that_training_holds_out(name: str) -> None:
    """No fault of a held-out suite belongs to a family that a training episode can have."""
    families = overlap(name)
    assert len(families) >= 18
    assert [family for family in families if not family.held_out] == []


def test_validation_uses_no_reserved_condition() -> None:
    """Choosing between policies reveals nothing about the conditions of the held-out suite."""
    used = {fault.condition for entry in entries("e5-validation") for fault in entry.scenario().spec.faults}
    assert not used & set(RESERVED)


def test_training_never_draws_a_reserved_condition() -> None:
    """Reserved conditions occur in no training episode and, with all splits, they do occur."""
    base = load_base(resolve_uri(E5_BASE, "tests"))
    space = EpisodeSpace()
    cases: tuple[tuple[Split, bool], ...] = (("train", False), ("all", True))
    for split, expected in cases:
        episodes = [draw_episode(base, space, 3, fleet, 0, split) for fleet in range(120)]
        drawn = {name.split("|")[2] for episode in episodes for name in episode.family}
        assert bool(drawn & set(RESERVED)) is expected


@pytest.mark.parametrize("name", SUITES)
def test_fixed_suites_compile_on_pools_of_one_contract(name: str) -> None:
    """Every scenario compiles, and all share the contract that policies are trained under."""
    base = load_base(resolve_uri(E5_BASE, "tests"))
    assert {compiled(entry).contract.sha256 for entry in entries(name)} == {base.compiled.contract.sha256}


def test_the_suite_of_policies_is_e5_with_more_configurations() -> None:
    """Same base, scenarios and seeds as E5; its configurations hold every setting that tuning chose."""
    suites = [load_suite(suite_path(name))[0].spec for name in ("e5-policies", "e5")]
    assert suites[0].scenarios == suites[1].scenarios
    assert (suites[0].base, suites[0].seed, suites[0].seeds) == (
        suites[1].base,
        suites[1].seed,
        suites[1].seeds,
    )
    assert set(suites[1].policies) <= set(suites[0].policies)
    results = sorted((suite_path("e5").parent.parent / "tuning").glob("*.json"))
    chosen = {json.loads(file.read_text(encoding="utf-8"))["chosen"] for file in results}
    assert chosen <= set(suites[0].policies)


def test_the_held_out_pools_are_others() -> None:
    """Each held-out fleet differs from the training fleet and from the other in kernels, replicas, homes."""
    fleets = [compiled(entries(name)[0]) for name in ("e5-validation", *HELD_OUT)]
    assert len({each.layout.kernels for each in fleets}) == len(fleets)
    assert len({each.layout.replicas for each in fleets}) == len(fleets)
    assert len({tuple(each.layout.kernels[kernel] for kernel in each.home) for each in fleets}) == len(fleets)


def test_no_two_held_out_suites_share_a_seed() -> None:
    """No episode of a held-out suite has the arrivals of an earlier one."""
    specs = [load_suite(suite_path(name))[0].spec for name in HELD_OUT]
    seeds = [seed for spec in specs for seed in range(spec.seed, spec.seed + spec.seeds)]
    assert len(seeds) == len(set(seeds))


@pytest.mark.parametrize(("name", "expected"), [("e5-heldout-3", ["no-vnni-replica"]), ("e5-heldout-4", [])])
def test_the_newer_held_out_suites_have_families_of_their_own(name: str, expected: list[str]) -> None:
    """But for the one measured fault of the int8 kernel no earlier suite has a fault of their families."""
    others = ("e5", "certify", *SUITES[: SUITES.index(name)])
    known = {family.name for other in others for family in overlap(other)}
    assert [family.scenario for family in overlap(name) if family.name in known] == expected
