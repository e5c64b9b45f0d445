"""The scoring network for fleets of other sizes: same weights; networks for one size only are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from contracts.documents.artifact import Training
from contracts.errors import DocumentError
from contracts.loading.shipped import SHIPPED_ARTEFACT
from controller.encoding.encoder import Encoder
from policies.artefacts import load_artefact
from policies.certify.artifact_files import RunsAs, write_artefact
from policies.learned.choosing import InputLayout
from policies.learned.onnx_graph import WEIGHTS, recurrent_bytes
from policies.learned.resized import resized
from policies.learned.runner import ScoreRunner
from tests.support.fleets.network_inputs import random_inputs


def shipped() -> bytes:
    """The ONNX file of the shipped network, which reads five slices."""
    return load_artefact(SHIPPED_ARTEFACT, allow_uncertified=True).content


def laid_out(kernels: int, slices: int) -> InputLayout:
    """The input layout of a network of these sizes."""
    return InputLayout(encoder=Encoder(kernels_max=kernels, slices=slices))


def spread(inputs: np.ndarray, source: InputLayout, onto: InputLayout, slices: list[int]) -> np.ndarray:
    """``inputs`` [B, size] of ``source`` in the layout ``onto``, whose slice i is the slice ``slices[i]``.

    Kernels that ``source`` lacks are padding.
    """
    place = {name: index for index, name in enumerate(source.names())}
    out = np.zeros((len(inputs), onto.size), dtype=np.float32)
    for index, name in enumerate(onto.names()):
        for new, old in enumerate(slices):
            if f"slice{new}." in name:
                name = name.replace(f"slice{new}.", f"slice{old}.")
                break
        if name in place:
            out[:, index] = inputs[:, place[name]]
    return out


def scores(content: bytes, inputs: np.ndarray) -> np.ndarray:
    """Scores [B, S, choices]."""
    return np.asarray(ScoreRunner(content)(inputs))


def test_a_duplicated_slice_is_scored_as_one() -> None:
    """Means and maxima over slices do not depend on their number, so copies of slices change no score."""
    most = ScoreRunner(shipped()).choices - 1
    two, eight = laid_out(most, 2), laid_out(most, 8)
    inputs = random_inputs(32, 3, layout=two)
    copied = spread(inputs, two, eight, [0, 1] * 4)
    mine = scores(resized(shipped(), 3, 2), inputs)
    theirs = scores(resized(shipped(), 3, 8), copied)
    np.testing.assert_allclose(theirs, np.tile(mine, (1, 4, 1)), rtol=1e-5, atol=1e-4)
    assert len(np.unique(mine.argmax(axis=2))) > 1


def test_missing_kernels_are_padding() -> None:
    """A network for larger pools scores the kernels of a small one as before, and never chooses padding."""
    most = ScoreRunner(shipped()).choices - 1
    small, large = laid_out(most, 5), laid_out(most + 4, 5)
    inputs = random_inputs(32, most, layout=small)
    mine = scores(shipped(), inputs)
    theirs = scores(resized(shipped(), most + 4, 5), spread(inputs, small, large, [0, 1, 2, 3, 4]))
    np.testing.assert_allclose(theirs[..., :most], mine[..., :most], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(theirs[..., -1], mine[..., -1], rtol=1e-5, atol=1e-4)
    assert (theirs[..., most:-1] < mine.max(axis=2, keepdims=True)).all()


def test_resizing_back_gives_the_same_file() -> None:
    """No weight is lost or changed; a fleet that fits gets the file as it is."""
    other = resized(shipped(), 3, 2)
    assert other != shipped()
    assert resized(other, 3, 5) == shipped() == resized(shipped(), 3, 5)


def test_every_weight_of_the_network_is_kept() -> None:
    """The names read from a file are those of the network in torch."""
    network = pytest.importorskip("policies.learned.network")
    assert set(WEIGHTS) == set(network.Scorer(laid_out(4, 3), width=8).state_dict())


def test_graphs_that_compute_something_else_are_refused() -> None:
    """A network with other operations would be another policy with these weights, so it is refused."""
    model = onnx.load_model_from_string(shipped())
    next(node for node in model.graph.node if node.op_type == "ReduceMean").op_type = "ReduceMax"
    with pytest.raises(DocumentError, match="another graph"):
        resized(model.SerializeToString(), 3, 2)
    with pytest.raises(DocumentError, match="ONNX"):
        resized(b"no network", 3, 2)


def test_networks_for_one_input_size_are_refused(tmp_path: Path) -> None:
    """Weights of another library's network, or of one with memory, fit one input length only."""
    run = pytest.importorskip("scripts.train.exported")
    training = Training(command="a test", seeds=(0,))
    gym = RunsAs(configuration="gym")
    manifest = write_artefact(tmp_path, "mine", shipped(), "Dense.", training, runs_as=gym)
    with pytest.raises(DocumentError, match="one of `gym`"):
        run.write_for_fleet(str(manifest), "scenario.yaml", tmp_path, "other")
    layout = laid_out(3, 2)
    shapes: dict[str, tuple[int, ...]] = {
        "lstm_actor.weight_ih_l0": (16, layout.size),
        "lstm_actor.weight_hh_l0": (16, 4),
        "lstm_actor.bias_ih_l0": (16,),
        "lstm_actor.bias_hh_l0": (16,),
        "mlp_extractor.policy_net.0.weight": (4, 4),
        "mlp_extractor.policy_net.0.bias": (4,),
        "action_net.weight": (2 * layout.choices, 4),
        "action_net.bias": (2 * layout.choices,),
    }
    weights = {name: np.zeros(shape, dtype=np.float32) for name, shape in shapes.items()}
    with pytest.raises(DocumentError, match="remembers"):
        resized(recurrent_bytes(weights, layout), 3, 4)
