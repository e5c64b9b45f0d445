"""A policy under its own meta-contract: the manifest names it, loading checks it, a route pins it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import yaml

pytest.importorskip("torch")

from contracts.documents import MetaContract, PolicyArtifact, RoutePolicy
from contracts.documents.artifact import Certificate
from contracts.errors import DocumentError
from contracts.loading.loader import document_sha256, dump_text, load_as
from contracts.loading.shipped import SHIPPED_META
from contracts.loading.uris import resolve_uri
from controller.encoding.features import ENCODING_VERSION
from policies.artefacts import load_artefact, load_learned
from policies.certify.artifact_files import write_artefact
from policies.route import route_setup, uncertified
from tests.policies.learned.test_runner import FLEET, TRAINING, certificate, content
from tests.support.documents.documents_written import envelope, write_yaml


def own_meta(folder: Path) -> Path:
    """The shipped clauses under another name, with the known-good kernel as the baseline."""
    document = yaml.safe_load(resolve_uri(SHIPPED_META, "").read_text())
    document["metadata"]["name"] = "mine"
    document["spec"]["baseline"] = "fixed_known_good"
    asked = document["spec"]["certification"]
    asked |= {name: f"package:contracts/library/{asked[name]}" for name in ("incidents", "quiet")}
    return write_yaml(folder / "meta.yaml", document)


def held_by(meta: Path, onnx: bytes) -> Certificate:
    """A passing certificate of ``onnx`` under the meta-contract at ``meta``."""
    found = certificate(onnx, ENCODING_VERSION)
    return found.model_copy(update={"meta_contract_sha256": document_sha256(load_as(MetaContract, meta))})


def artefact(folder: Path, *, names: bool, certified: bool = True) -> Path:
    """A manifest certified under the folder's own meta-contract, which it ``names`` or does not."""
    onnx, meta = content(), own_meta(folder)
    held = held_by(meta, onnx) if certified else None
    path = write_artefact(folder / "art", "own", onnx, "A test.", TRAINING, held)
    if names:
        found = load_as(PolicyArtifact, path)
        spec = found.spec.model_copy(update={"meta_contract": "../meta.yaml"})
        path.write_text(dump_text(found.model_copy(update={"spec": spec})))
    return path


def test_loading_checks_the_certificate_under_the_named_meta_contract(tmp_path: Path) -> None:
    """With its own meta-contract named the policy loads; else the shipped one is checked and refuses it."""
    assert load_learned(str(artefact(tmp_path, names=True)), FLEET).policy_id == "learned"
    with pytest.raises(DocumentError, match=r"meta_contract_sha256.*--meta"):
        load_artefact(str(artefact(tmp_path, names=False)))


def test_a_changed_meta_contract_is_refused(tmp_path: Path) -> None:
    """A certificate is bound to the meta-contract as it was then."""
    manifest = artefact(tmp_path, names=True)
    meta = tmp_path / "meta.yaml"
    meta.write_text(meta.read_text().replace("threshold: 300.0", "threshold: 301.0"))
    with pytest.raises(DocumentError, match="meta_contract_sha256"):
        load_artefact(str(manifest))


def route(folder: Path, manifest: Path, **changes: object) -> RoutePolicy:
    """A document that enforces ``manifest`` under the folder's own meta-contract."""
    pinned = {"uri": "art/own.yaml", "sha256": hashlib.sha256(manifest.read_bytes()).hexdigest()}
    spec: dict[str, object] = {
        "description": "tests only",
        "policy": "learned",
        "artifact": pinned,
        "mode": "enforce",
        "tick_s": FLEET.tick_s,
        "pool": "any",
        "contract": FLEET.contract.name,
        "meta_contract": "meta.yaml",
        "route": {"name": "chat"},
    }
    return load_as(
        RoutePolicy, write_yaml(folder / "route.yaml", envelope("RoutePolicy", "r", spec | changes))
    )


def test_a_route_enforces_a_policy_certified_under_its_own_meta_contract(tmp_path: Path) -> None:
    """The document's meta-contract applies, and a pinned hash must be that of the file."""
    manifest, file = artefact(tmp_path, names=True), str(tmp_path / "route.yaml")
    setup = route_setup(route(tmp_path, manifest), file, FLEET)
    assert setup.meta is not None
    assert setup.meta.name == "mine"
    pin = document_sha256(load_as(MetaContract, tmp_path / "meta.yaml"))
    route_setup(route(tmp_path, manifest, meta_contract_sha256=pin), file, FLEET)
    with pytest.raises(DocumentError, match=r"spec\.meta_contract_sha256"):
        route_setup(route(tmp_path, manifest, meta_contract_sha256="0" * 64), file, FLEET)
    shipped = route(tmp_path, manifest, meta_contract=SHIPPED_META)
    with pytest.raises(DocumentError, match=r"certificate\.meta_contract_sha256"):
        route_setup(shipped, file, FLEET)


def test_without_a_certificate_a_policy_observes_and_is_reported(tmp_path: Path) -> None:
    """Observing runs the bare network and names what is missing; enforcing is refused for the same reason."""
    manifest, file = artefact(tmp_path, names=True, certified=False), str(tmp_path / "route.yaml")
    seen = route(tmp_path, manifest, mode="observe")
    assert route_setup(seen, file, FLEET).policy.policy_id.startswith("learned:onnx=")
    (reason,) = uncertified(seen, file)
    assert "expected a certificate, got none" in reason
    with pytest.raises(DocumentError, match="expected a certificate, got none"):
        route_setup(route(tmp_path, manifest), file, FLEET)
    good = artefact(tmp_path, names=True)
    assert uncertified(route(tmp_path, good, mode="observe"), file) == ()


def test_a_broken_artefact_does_not_even_observe(tmp_path: Path) -> None:
    """Other bytes than the manifest pins are not treated as a missing certificate."""
    manifest = artefact(tmp_path, names=True, certified=False)
    (tmp_path / "art" / "own.onnx").write_bytes(b"another")
    with pytest.raises(DocumentError, match="pins another content"):
        route_setup(route(tmp_path, manifest, mode="observe"), str(tmp_path / "route.yaml"), FLEET)
