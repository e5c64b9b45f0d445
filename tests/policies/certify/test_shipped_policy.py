"""The policy that ships: it loads under its certificate, documents its training, and drives its fleet."""

from __future__ import annotations

import numpy as np

from contracts.loading.loader import document_sha256
from contracts.loading.shipped import LIVE_ARTEFACT, SHIPPED_ARTEFACT, SHIPPED_RECIPE
from contracts.loading.uris import resolve_uri
from policies.artefacts import load_artefact
from policies.certify.artifact_files import named_meta
from policies.certify.evidence import evidence_file, refuse_other_episodes
from policies.learned.resized import resized
from policies.registry import make_configuration
from policies.route import refuse_uncertified_baseline
from policies.train.recipe import load_recipe
from scripts.train.certificates import refuse_other_worlds
from simulator.env.base import load_base


def test_the_shipped_policy_is_certified_and_documents_its_training() -> None:
    """Its certificate passes, its recipe is the shipped one, and every seed's score is listed."""
    manifest = load_artefact(SHIPPED_ARTEFACT).manifest
    training = manifest.spec.training
    assert training.recipe_sha256 == document_sha256(load_recipe(resolve_uri(SHIPPED_RECIPE, "test")))
    assert tuple(run.seed for run in training.runs) == training.seeds
    assert training.data
    assert all(resolve_uri(pin.uri, SHIPPED_ARTEFACT).is_file() for pin in training.data)
    shipped = [run for run in training.runs if run.shipped]
    assert len(shipped) == 1
    assert shipped[0].score == max(run.score for run in training.runs)


def test_the_policy_for_live_drills_has_the_same_weights_and_its_own_certificate() -> None:
    """Only the sizes in its graph differ; its certificate and the baseline's follow from their episodes.

    Both cover what their suites draw.
    """
    shipped, mine = load_artefact(SHIPPED_ARTEFACT), load_artefact(LIVE_ARTEFACT)
    assert resized(shipped.content, 2, 4) == mine.content
    meta, place = named_meta(mine.manifest, mine.file)
    assert meta.spec.baseline == "hysteresis"
    baseline = refuse_uncertified_baseline(meta, place)
    for held, file in ((mine.manifest.spec.certificate, mine.file), (baseline, None)):
        assert held is not None
        where = file or mine.file.with_name("hysteresis-certificate.json")
        refuse_other_worlds(held, place, where)
        refuse_other_episodes(held, meta, evidence_file(where))


def test_the_shipped_policy_fits_the_fleet_of_e5() -> None:
    """The configuration ``learned`` is made for E5's fleet and starts with every slice at home."""
    fleet = load_base(
        resolve_uri("package:contracts/library/suites/e5-base.yaml", "test"), 60.0
    ).compiled.setup
    setup = make_configuration("learned", fleet)
    memory = setup.policy.initial(2)
    np.testing.assert_array_equal(memory["choice"], np.tile(fleet.home, (2, 1)))
