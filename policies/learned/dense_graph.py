"""A plain multi-layer perceptron from observations to actions as an ONNX file, written node by node.

It corresponds to the MLP policy of reinforcement-learning libraries: dense layers with an activation between
them, and a last layer that gives the mean action. Equal weights give equal bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from policies.learned.onnx_check import OPSET
from policies.learned.onnx_graph import IR_VERSION

INPUT, OUTPUT = "observation", "action"
#: Activations by their ONNX names.
ACTIVATIONS = ("Tanh", "Relu", "Elu", "LeakyRelu", "Sigmoid")


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseNetwork:
    """Dense layers with ``activation`` after each but the last."""

    layers: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]
    """(weights [out, in], bias [out]), in order."""
    activation: str

    def __post_init__(self) -> None:
        sizes = [weights.shape for weights, _ in self.layers]
        fits = all(before[0] == after[1] for before, after in pairwise(sizes))
        biased = all(bias.shape == (weights.shape[0],) for weights, bias in self.layers)
        if not sizes or not fits or not biased:
            raise ValueError(f"dense layers that follow each other expected, got {sizes}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"one of {', '.join(ACTIVATIONS)} expected, got {self.activation!r}")


def dense_bytes(network: DenseNetwork) -> bytes:
    """The ONNX file: input ``observation`` [batch, size], output ``action`` [batch, size]."""
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []
    last = len(network.layers) - 1
    value = INPUT
    for place, (weights, bias) in enumerate(network.layers):
        names = [f"weights{place}", f"bias{place}"]
        constants += [
            numpy_helper.from_array(np.ascontiguousarray(array, dtype=np.float32), name)
            for array, name in zip((weights, bias), names, strict=True)
        ]
        made = OUTPUT if place == last else f"sum{place}"
        nodes.append(helper.make_node("Gemm", [value, *names], [made], transB=1))
        value = made
        if place != last:
            value = f"layer{place}"
            nodes.append(helper.make_node(network.activation, [made], [value]))
    return _model(nodes, constants, network.layers[0][0].shape[1], network.layers[-1][0].shape[0])


def _model(nodes: list[onnx.NodeProto], constants: list[onnx.TensorProto], taken: int, given: int) -> bytes:
    def declared(name: str, size: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])

    graph = helper.make_graph(
        nodes, "dense-policy", [declared(INPUT, taken)], [declared(OUTPUT, given)], constants
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="selvage")
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content
