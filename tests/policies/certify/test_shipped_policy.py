"""The policy that ships: it loads under its certificate, says how it was made, and drives its fleet."""

from __future__ import annotations

import numpy as np

from contracts.loading.loader import document_sha256
from contracts.loading.shipped import SHIPPED_ARTEFACT, SHIPPED_RECIPE
from contracts.loading.uris import resolve_uri
from policies.artefacts import load_artefact
from policies.registry import make_configuration
from policies.train.recipe import load_recipe
from simulator.env.base import load_base


def test_the_shipped_policy_is_certified_and_says_how_it_was_made() -> None:
    """Its certificate passes, its recipe is the shipped one, and every seed's score is told."""
    manifest = load_artefact(SHIPPED_ARTEFACT).manifest
    training = manifest.spec.training
    assert training.recipe_sha256 == document_sha256(load_recipe(resolve_uri(SHIPPED_RECIPE, "test")))
    assert tuple(run.seed for run in training.runs) == training.seeds
    assert training.data
    assert all(resolve_uri(pin.uri, SHIPPED_ARTEFACT).is_file() for pin in training.data)
    shipped = [run for run in training.runs if run.shipped]
    assert len(shipped) == 1
    assert shipped[0].score == max(run.score for run in training.runs)


def test_the_shipped_policy_fits_the_fleet_of_e5() -> None:
    """The configuration ``learned`` is made for E5's fleet and begins with every slice at home."""
    fleet = load_base(
        resolve_uri("package:contracts/library/suites/e5-base.yaml", "test"), 60.0
    ).compiled.setup
    setup = make_configuration("learned", fleet)
    memory = setup.policy.initial(2)
    np.testing.assert_array_equal(memory["choice"], np.tile(fleet.home, (2, 1)))
