"""Artefacts of networks that another library trained drive as ``gym``, and are certified only as that."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from contracts.documents import PolicyArtifact, RoutePolicy
from contracts.documents.artifact import Training
from contracts.documents.envelope import FileRef
from contracts.errors import DocumentError
from contracts.loading.files import sha256_of
from contracts.loading.loader import dump_text, load_as
from contracts.loading.shipped import SHIPPED_META
from controller.encoding.encoder import Encoder
from controller.fleet import FleetSetup
from policies.artefacts import load_artefact, load_learned, manifest_subject, network_subject
from policies.certify.artifact_files import RunsAs, write_artefact
from policies.learned.dense_graph import DenseNetwork, dense_bytes
from policies.learned.plain import PlainPolicy
from policies.route import route_setup
from policies.supervised import load_meta, own_meta, refuse_other_artefact
from scripts.cli.policy import subject_of
from scripts.drill.healer import policy_fields
from simulator.world.scenario import load_scenario
from tests.policies.test_route import write
from tests.support.cluster.path_documents import meta_contract
from tests.support.fleets.synthetic import scenario_document, write_world

TRAINING = Training(command="elsewhere", seeds=(0,))


@pytest.fixture
def fleet(tmp_path: Path) -> FleetSetup:
    """The synthetic fleet."""
    return load_scenario(write_world(tmp_path, scenario_document(horizon_s=20.0))).setup


def network(fleet: FleetSetup) -> bytes:
    """A network that proposes the home table for any input."""
    encoder = Encoder(kernels_max=8, slices=len(fleet.home))
    weights = np.zeros((encoder.action_size, encoder.size), dtype=np.float32)
    layer = (weights, np.zeros(encoder.action_size, dtype=np.float32))
    return dense_bytes(DenseNetwork(layers=(layer,), activation="Tanh"))


@pytest.fixture
def manifest(tmp_path: Path, fleet: FleetSetup) -> Path:
    """The network's artefact."""
    return write_artefact(
        tmp_path / "art", "own", network(fleet), "Tests.", TRAINING, runs_as=RunsAs(configuration="gym")
    )


def routed(manifest: Path, folder: Path, policy: str, mode: str = "observe") -> tuple[RoutePolicy, str]:
    """A document that names ``manifest`` as ``policy``, and its path."""
    pinned = {"uri": str(manifest), "sha256": sha256_of(manifest)}
    file = write(folder, policy=policy, mode=mode, artifact=pinned, meta_contract=str(meta_contract(folder)))
    return load_as(RoutePolicy, file), str(file)


def test_it_drives_only_as_the_configuration_it_was_trained_for(
    manifest: Path, fleet: FleetSetup, tmp_path: Path
) -> None:
    """As ``gym`` its network decides; as ``learned`` it is refused with the name that fits."""
    found = route_setup(*routed(manifest, tmp_path, "gym"), fleet)
    assert isinstance(found.policy, PlainPolicy)
    with pytest.raises(DocumentError, match="expected gym, got learned"):
        route_setup(*routed(manifest, tmp_path, "learned"), fleet)
    bare = write(tmp_path, policy="gym", meta_contract=str(meta_contract(tmp_path)))
    with pytest.raises(DocumentError, match="expected a manifest"):
        route_setup(load_as(RoutePolicy, bare), str(bare), fleet)
    with pytest.raises(DocumentError, match=r"spec\.configuration"):
        load_learned(str(manifest), fleet, allow_uncertified=True)


def test_without_a_certificate_it_does_not_drive(manifest: Path, fleet: FleetSetup, tmp_path: Path) -> None:
    """In mode enforce the artefact is refused without a certificate."""
    with pytest.raises(DocumentError, match="certificate"):
        route_setup(*routed(manifest, tmp_path, "gym", "enforce"), fleet)
    with pytest.raises(DocumentError, match="certificate"):
        load_artefact(str(manifest))


def test_a_certificate_covers_the_network_in_its_configuration(manifest: Path) -> None:
    """The command certifies what the manifest asks for; the same bytes as ``learned`` are another subject."""
    onnx = manifest.with_name("own.onnx")
    digest = hashlib.sha256(onnx.read_bytes()).hexdigest()
    asked = manifest_subject(load_as(PolicyArtifact, manifest))
    assert subject_of(f"gym:onnx={onnx}") == (asked.sha256, asked.rules_sha256)
    assert network_subject(digest, "gym") == asked
    assert network_subject(digest).sha256 != asked.sha256
    with pytest.raises(DocumentError, match="gym:onnx=FILE and nothing else"):
        subject_of(f"gym:onnx={onnx},window_s=5")


def test_a_foreign_meta_contract_is_refused(manifest: Path, tmp_path: Path) -> None:
    """As for a learned policy: its own meta-contract is the default, and another one is refused."""
    mine, artefact = meta_contract(tmp_path), load_artefact(str(manifest), allow_uncertified=True)
    spec = artefact.manifest.spec.model_copy(update={"meta_contract": str(mine)})
    owned = manifest.with_name("owned.yaml")
    owned.write_text(dump_text(artefact.manifest.model_copy(update={"spec": spec})))
    named = f"gym:artefact={owned}"
    assert Path(own_meta(named)) == mine
    asked, _ = load_meta(SHIPPED_META, "tests")
    with pytest.raises(DocumentError, match="selvage policy certify gym:onnx=FILE"):
        refuse_other_artefact(named, asked, SHIPPED_META)
    refuse_other_artefact(named, load_meta(str(mine), "tests")[0], str(mine))


def test_a_drill_document_can_name_it(manifest: Path) -> None:
    """The document names the configuration and pins the artefact."""
    found = policy_fields(f"gym:artefact={manifest}")
    assert found == {"policy": "gym", "artifact": FileRef(uri=str(manifest), sha256=sha256_of(manifest))}
