"""Learned policies in memory and on disk: loaded ones drive, those that do not fit are refused."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from contracts.compiled.contract import Level  # noqa: E402
from contracts.documents.artifact import Certificate, Training  # noqa: E402
from contracts.errors import DocumentError  # noqa: E402
from contracts.loading.loader import document_sha256, load_as, load_document  # noqa: E402
from contracts.loading.shipped import SHIPPED_META  # noqa: E402
from contracts.loading.uris import resolve_uri  # noqa: E402
from contracts.plugins import ratio  # noqa: E402
from controller.encoding.encoder import Encoder  # noqa: E402
from controller.ports import Observation  # noqa: E402
from policies.artefacts import load_artefact, load_learned, network_subject, with_certificate  # noqa: E402
from policies.certify.artifact_files import write_artefact  # noqa: E402
from policies.certify.certificate import judge_clauses  # noqa: E402
from policies.kinds import POLICIES  # noqa: E402
from policies.learned import choosing  # noqa: E402
from policies.learned.choosing import RETURN_AFTER_S, Chooser, InputLayout  # noqa: E402
from policies.learned.network import Scorer  # noqa: E402
from policies.learned.onnx_graph import network_bytes  # noqa: E402
from policies.learned.runner import learned_policy  # noqa: E402
from policies.synthetic_fleet import synthetic_fleet  # noqa: E402
from tests.support.documents.certification_evidence import sound_evidence  # noqa: E402
from tests.support.fleets.seen import calm, unhealthy  # noqa: E402

FLEET = synthetic_fleet(3, 2, 6)
TRAINING = Training(command="a test", seeds=(0,))


def content(slices: int = 2, kernels_max: int = 4) -> bytes:
    """An untrained network."""
    torch.manual_seed(0)
    layout = InputLayout(encoder=Encoder(kernels_max=kernels_max, slices=slices))
    weights = {name: tensor.numpy() for name, tensor in Scorer(layout, width=8).state_dict().items()}
    return network_bytes(weights, layout)


def certificate(onnx: bytes, encoding_version: int) -> Certificate:
    """A passing certificate for ``onnx`` on made-up episodes."""
    from contracts.documents import MetaContract

    place = resolve_uri(SHIPPED_META, "test")
    meta = load_as(MetaContract, place)
    asked = meta.spec.certification
    assert asked is not None
    subject = network_subject(hashlib.sha256(onnx).hexdigest(), encoding_version=encoding_version)
    return Certificate(
        subject="test",
        subject_sha256=subject.sha256,
        rules_sha256=subject.rules_sha256,
        meta_contract_sha256=document_sha256(meta),
        suite_sha256=document_sha256(load_document(resolve_uri(asked.incidents, place))),
        quiet_suite_sha256=document_sha256(load_document(resolve_uri(asked.quiet, place))),
        worlds_sha256=asked.worlds_sha256,
        command="a test",
        code_version="0",
        seeds=20,
        episodes=200,
        quiet_slice_days=125.0,
        passed=True,
        clauses=judge_clauses(meta, sound_evidence()),
    )


def test_it_stays_while_healthy_and_leaves_a_kernel_in_alarm() -> None:
    """Calm fleets keep their table; a slice whose kernel is at fallback goes to a compliant kernel."""
    policy = learned_policy(content(), FLEET, "learned")
    seen = calm(FLEET, 10.0, batch=3)
    proposal, memory = policy.propose(seen, policy.initial(3))
    np.testing.assert_array_equal(proposal.table, seen.table)
    proposal, _ = policy.propose(unhealthy(seen, 0, 1, Level.FALLBACK), memory)
    np.testing.assert_array_equal(proposal.table[:, 0], seen.table[:, 0])
    assert (proposal.table[:, 1, 0] == 0.0).all()
    assert (proposal.table[:, 1, 1:3].sum(axis=1) == 1.0).all()


def test_a_batch_equals_its_fleets() -> None:
    """The proposal for a fleet depends on that fleet alone."""
    policy = learned_policy(content(), FLEET, "learned")
    seen = unhealthy(calm(FLEET, 10.0, batch=2), 0, 1, Level.FALLBACK)
    both, _ = policy.propose(seen, policy.initial(2))
    one, _ = policy.propose(unhealthy(calm(FLEET, 10.0), 0, 1, Level.FALLBACK), policy.initial(1))
    np.testing.assert_array_equal(both.table, np.repeat(one.table, 2, axis=0))


def test_slices_return_home_one_by_one_after_an_hour() -> None:
    """A slice that left returns an hour later at the earliest, and never two at once."""
    layout = InputLayout(encoder=Encoder(kernels_max=4, slices=2))
    chooser = Chooser.of(layout.encoder, 3, FLEET.home, FLEET.contract)
    away, memory = np.full((1, 2), 2), chooser.initial(1)
    _, memory = chooser.propose(away, calm(FLEET, 100.0), memory)
    _, memory = chooser.propose(away, calm(FLEET, 99.0 + RETURN_AFTER_S), memory)
    assert memory["choice"].tolist() == [[2, 2]]
    _, memory = chooser.propose(away, calm(FLEET, 100.0 + RETURN_AFTER_S), memory)
    assert memory["choice"].tolist() == [[0, 2]]
    _, memory = chooser.propose(np.array([[0, 2]]), calm(FLEET, 170.0 + RETURN_AFTER_S), memory)
    assert memory["choice"].tolist() == [[0, 0]]


def test_artefacts_are_deterministic_and_load_when_certified(tmp_path: Path) -> None:
    """Writing twice gives equal files; with its own passing certificate the policy loads and drives."""
    onnx = content()
    first, second = (write_artefact(tmp_path / place, "p", onnx, "A test.", TRAINING) for place in "ab")
    assert first.read_bytes() == second.read_bytes()
    artefact = load_artefact(str(first), allow_uncertified=True)
    found = certificate(onnx, artefact.manifest.spec.encoding_version)
    manifest = with_certificate(artefact, found)
    third = write_artefact(tmp_path / "c", "p", onnx, "A test.", TRAINING, manifest.spec.certificate)
    policy = load_learned(str(third), FLEET)
    assert policy.propose(calm(FLEET), policy.initial(1))[0].table.shape == (1, 2, 4)


@pytest.mark.parametrize(
    "name", ["RULES_VERSION", "REASON", "OWN_REASON", "PEER_REASON", "RETURN_AFTER_S", "ROOM"]
)
def test_rules_other_than_those_certified_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A certificate covers the fixed rules as well: if one changes, the artefact no longer loads."""
    onnx = content()
    bare = load_artefact(
        str(write_artefact(tmp_path, "p", onnx, "A test.", TRAINING)), allow_uncertified=True
    )
    held = with_certificate(bare, certificate(onnx, bare.manifest.spec.encoding_version)).spec.certificate
    path = write_artefact(tmp_path, "p", onnx, "A test.", TRAINING, held)
    load_artefact(str(path))
    old = getattr(choosing, name)
    other = replace(old, fill_ratio=0.8) if name == "ROOM" else 2 * old
    monkeypatch.setattr(choosing, name, other)
    with pytest.raises(DocumentError, match="rules and settings of this version"):
        load_artefact(str(path))


def test_a_detector_other_than_the_one_certified_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A default setting of the configuration's detector is part of the certified subject."""
    onnx = content()
    bare = load_artefact(
        str(write_artefact(tmp_path, "p", onnx, "A test.", TRAINING)), allow_uncertified=True
    )
    held = certificate(onnx, bare.manifest.spec.encoding_version)
    configuration = POLICIES["learned"]
    changed = {**configuration.parameters, "confidence": ratio(0.9, "made up")}
    other = replace(configuration, parameters=changed)
    monkeypatch.setitem(POLICIES, "learned", other)
    with pytest.raises(DocumentError, match="certify again"):
        with_certificate(bare, held)


def test_artefacts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """Refused: no certificate, another network's certificate, changed bytes, another encoding."""
    onnx = content()
    bare = write_artefact(tmp_path, "p", onnx, "A test.", TRAINING)
    with pytest.raises(DocumentError, match="certificate"):
        load_learned(str(bare), FLEET)
    artefact = load_artefact(str(bare), allow_uncertified=True)
    version = artefact.manifest.spec.encoding_version
    with pytest.raises(DocumentError, match="another policy"):
        with_certificate(artefact, certificate(b"another", version))
    text = bare.read_text()
    bare.write_text(text.replace(f"encoding_version: {version}", f"encoding_version: {version + 1}"))
    with pytest.raises(DocumentError, match="encoding_version"):
        load_artefact(str(bare), allow_uncertified=True)
    bare.write_text(text)
    (tmp_path / "p.onnx").write_bytes(onnx[:-1] + b"x")
    with pytest.raises(DocumentError, match="sha256"):
        load_artefact(str(bare), allow_uncertified=True)


def test_networks_that_do_not_fit_the_fleet_are_refused() -> None:
    """Refused: something other than ONNX, another number of slices, a pool larger than the network's."""
    with pytest.raises(DocumentError, match="ONNX"):
        learned_policy(b"no network", FLEET, "learned")
    with pytest.raises(DocumentError, match="slices"):
        learned_policy(content(slices=3), FLEET, "learned")
    with pytest.raises(DocumentError, match="kernels"):
        learned_policy(content(kernels_max=2), FLEET, "learned")


def crowded() -> tuple[Chooser, Observation]:
    """Three kernels of 20 requests/s, two slices of 14 each, slice 0 at home on 0 and slice 1 on 1."""
    layout = InputLayout(encoder=Encoder(kernels_max=4, slices=2))
    fleet = replace(FLEET, home=np.array([0, 1]))
    chooser = Chooser.of(layout.encoder, 3, fleet.home, fleet.contract)
    return chooser, calm(fleet, 100.0, offered_rps=np.full((1, 2), 14.0))


def test_a_failover_displaces_no_slice() -> None:
    """A slice that fails over takes the headroom left; the slice at home there keeps its row."""
    chooser, seen = crowded()
    _, memory = chooser.propose(np.array([[0, 1]]), seen, chooser.initial(1))
    proposal, memory = chooser.propose(np.array([[1, 1]]), seen, memory)
    np.testing.assert_allclose(proposal.table[0, 1], [0.0, 1.0, 0.0, 0.0])
    assert 0.0 < proposal.table[0, 0, 1] < 1.0
    assert proposal.table[0, 0, 2] == pytest.approx(1.0 - proposal.table[0, 0, 1])


def test_a_failover_displaces_no_slice_whose_load_has_grown() -> None:
    """A slice keeps its row if its kernel is fuller than a plan may fill it, but still carries it."""
    chooser, seen = crowded()
    _, memory = chooser.propose(np.array([[0, 1]]), seen, chooser.initial(1))
    busier = replace(seen, now_s=seen.now_s + 1.0, offered_rps=np.array([[14.0, 19.0]]))
    proposal, _ = chooser.propose(np.array([[1, 1]]), busier, memory)
    np.testing.assert_array_equal(proposal.table[0, 1], [0.0, 1.0, 0.0, 0.0])


def test_failovers_and_capacity_moves_are_told_apart() -> None:
    """The row that fails over moves for a reason, the row that no longer fits moves for capacity."""
    chooser, seen = crowded()
    _, memory = chooser.propose(np.array([[0, 1]]), seen, chooser.initial(1))
    busier = replace(seen, now_s=seen.now_s + 1.0, offered_rps=np.array([[14.0, 25.0]]))
    proposal, _ = chooser.propose(np.array([[1, 1]]), busier, memory)
    assert 0.0 < proposal.table[0, 1, 1] < 1.0
    assert proposal.for_capacity().tolist() == [[False, True]]


def test_a_failover_overflows_to_no_kernel_that_was_left() -> None:
    """Load that does not fit the failover target goes elsewhere, never back to the kernel it left."""
    chooser, seen = crowded()
    _, memory = chooser.propose(np.array([[0, 1]]), seen, chooser.initial(1))
    for second in range(3):
        later = replace(seen, now_s=seen.now_s + second)
        proposal, memory = chooser.propose(np.array([[1, 1]]), later, memory)
        assert proposal.table[0, 0, 0] == 0.0


def test_an_overflow_is_replanned_when_its_kernel_becomes_unhealthy() -> None:
    """A plan that sends part of a slice to a kernel in alarm is dropped at once."""
    chooser, seen = crowded()
    _, memory = chooser.propose(np.array([[0, 1]]), seen, chooser.initial(1))
    proposal, memory = chooser.propose(np.array([[1, 1]]), seen, memory)
    assert proposal.table[0, 0, 2] > 0.0
    sick = unhealthy(replace(seen, now_s=seen.now_s + 1.0), 2, 0, Level.GUARD, certified=True)
    proposal, _ = chooser.propose(np.array([[1, 1]]), sick, memory)
    assert proposal.table[0, 0, 2] == 0.0
