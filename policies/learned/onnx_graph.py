"""The scoring network as an ONNX file, written node by node; and a recurrent one.

An exporter would add its own version, source lines and paths; written here, equal weights give equal bytes.
The arithmetic mirrors ``policies.learned.network.Scorer``, that of ``recurrent_bytes`` sb3-contrib's
``MlpLstmPolicy``; tests compare both to 1e-5.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from controller.encoding.features import Scope
from policies.learned.choosing import (
    BLOCKED,
    BOUND,
    CELL_MEMORY,
    NETWORK_MEMORY,
    OWN_REASON,
    PEER_REASON,
    REASON,
    SLICE_MEMORY,
    InputLayout,
    feature_names,
)
from policies.learned.onnx_check import OPSET

INPUT, OUTPUT = "inputs", "scores"
#: IR version that every onnxruntime since 1.10 reads.
IR_VERSION = 8

Weights = Mapping[str, NDArray[np.float32]]
#: Arrays of ``Scorer.state_dict`` by name; none of their sizes depends on the layout.
WEIGHTS = (
    *("reader.cell.weight", "reader.cell.bias", "reader.kernel.weight", "reader.slice.weight"),
    *("reader.fleet.weight", "reader.again.weight", "reader.again.bias"),
    *("reader.over_kernels.weight", "reader.over_slices.weight", "rule.weight", "kernel_rule.weight"),
    *("score.weight", "score.bias", "shed.weight", "shed.bias", "stay"),
)


def network_bytes(weights: Weights, layout: InputLayout) -> bytes:
    """The ONNX file of ``weights``, named as in ``Scorer.state_dict``."""
    graph = _Graph(weights, layout)
    graph.build()
    return _file(graph, layout, {})


def weight_places(layout: InputLayout) -> dict[str, str]:
    """Where in the file of ``network_bytes`` each of ``WEIGHTS`` stands: names of its initialisers."""
    graph = _Graph({name: np.zeros((1, 1), dtype=np.float32) for name in WEIGHTS}, layout)
    graph.build()
    return graph.places


def recurrent_bytes(weights: Weights, layout: InputLayout) -> bytes:
    """The ONNX file of a recurrent actor: one LSTM, one hidden layer, a score per slice and choice.

    weights: ``lstm_actor.*``, ``mlp_extractor.policy_net.0.*`` and ``action_net.*`` as in the state of
    sb3-contrib's ``MlpLstmPolicy``. Inputs beside ``inputs``: ``hidden``, ``cell`` [B, width], zero before
    the first tick; outputs beside ``scores``: ``next_hidden``, ``next_cell``.
    """
    graph = _RecurrentGraph(weights, layout)
    graph.build()
    return _file(graph, layout, dict.fromkeys(NETWORK_MEMORY, graph.width))


def _file(graph: _Graph, layout: InputLayout, memory: Mapping[str, int]) -> bytes:
    """``graph`` as a checked model; ``memory``: sizes of its memory arrays by name."""
    sizes = {NETWORK_MEMORY[name]: [size] for name, size in memory.items()}
    outputs = {OUTPUT: [layout.encoder.slices, layout.choices], **sizes}
    inputs = {INPUT: [layout.size], **{name: [size] for name, size in memory.items()}}
    model = helper.make_model(
        helper.make_graph(
            graph.nodes, "selvage-scores", _declared(inputs), _declared(outputs), graph.constants
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="selvage",
    )
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _declared(shapes: Mapping[str, list[int]]) -> list[onnx.ValueInfoProto]:
    """Float arrays by name; the batch is their leading axis."""
    return [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])
        for name, shape in shapes.items()
    ]


class _Graph:
    """Nodes and constants; every helper adds one node and returns the name of its output."""

    def __init__(self, weights: Weights, layout: InputLayout) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        #: Names of the constants that hold weights, by the weight's name.
        self.places: dict[str, str] = {}
        self._weights, self._layout = weights, layout

    def build(self) -> None:
        """The whole network."""
        encoder = self._layout.encoder
        most, slices = encoder.kernels_max, encoder.slices
        cells, kernels, own, fleet, memory = self._take_apart()
        chosen = self._part(memory, 3, 0, 1)
        present = self._op("Reshape", self._part(kernels, 2, 0, 1), self._ints([-1, most, 1, 1]))
        pairs, summary = self._read(cells, kernels, own, fleet, chosen, present)
        rule = self._axes("Unsqueeze", self._linear(kernels, "kernel_rule"), [2])
        rule = self._op("Add", self._linear(cells, "rule"), rule)
        score = self._op("Add", self._linear(pairs, "score"), rule)
        blocked, bound = self._rules(kernels, cells, chosen)
        score = self._op("Sub", score, self._op("Mul", blocked, self._floats([BLOCKED])))
        score = self._op("Add", score, self._op("Mul", bound, self._floats([BOUND])))
        stay = self._weight("stay", self._weights["stay"].reshape(1))
        score = self._op("Add", score, self._op("Mul", chosen, stay))
        score = self._op("Reshape", score, self._ints([-1, most, slices]))
        score = self._node("Transpose", [score], perm=[0, 2, 1])
        shed_chosen = self._part(own, 2, len(feature_names(Scope.SLICE)), 1)
        shed = self._op("Add", self._linear(summary, "shed"), self._op("Mul", shed_chosen, stay))
        self._node("Concat", [score, shed], OUTPUT, axis=2)

    def _take_apart(self) -> tuple[str, str, str, str, str]:
        """``(cells, kernels, slices, fleet, cell memory)``; cells and slices with their memory."""
        layout, encoder = self._layout, self._layout.encoder
        most, slices = encoder.kernels_max, encoder.slices
        own, per_slice = len(feature_names(Scope.KERNEL)), len(feature_names(Scope.SLICE))
        edge, memory_at = most * encoder.row_size, encoder.size
        rows = self._shaped(self._part(INPUT, 1, 0, edge), [-1, most, encoder.row_size])
        by_slice = self._shaped(self._part(INPUT, 1, edge, slices * per_slice), [-1, slices, per_slice])
        fleet_at = edge + slices * per_slice
        fleet = self._part(INPUT, 1, fleet_at, encoder.size - fleet_at)
        memory = self._part(INPUT, 1, memory_at, layout.cell_memory_size)
        memory = self._shaped(memory, [-1, most, slices, len(CELL_MEMORY)])
        after = memory_at + layout.cell_memory_size
        remembered = self._part(INPUT, 1, after, slices * len(SLICE_MEMORY))
        remembered = self._shaped(remembered, [-1, slices, len(SLICE_MEMORY)])
        cells = self._part(rows, 2, own, encoder.row_size - own)
        cells = self._shaped(cells, [-1, most, slices, len(feature_names(Scope.KERNEL_SLICE))])
        return (
            self._node("Concat", [cells, memory], axis=3),
            self._part(rows, 2, 0, own),
            self._node("Concat", [by_slice, remembered], axis=2),
            fleet,
            memory,
        )

    def _read(
        self, cells: str, kernels: str, own: str, fleet: str, chosen: str, present: str
    ) -> tuple[str, str]:
        """``policies.learned.network.Reader``."""
        first = self._linear(cells, "reader.cell")
        first = self._op("Add", first, self._axes("Unsqueeze", self._linear(kernels, "reader.kernel"), [2]))
        first = self._op("Add", first, self._axes("Unsqueeze", self._linear(own, "reader.slice"), [1]))
        first = self._op("Add", first, self._axes("Unsqueeze", self._linear(fleet, "reader.fleet"), [1, 2]))
        first = self._op("Mul", self._op("Relu", first), present)
        total = self._axes("ReduceSum", first, [1], keepdims=0)
        count = self._axes("ReduceSum", self._axes("Squeeze", present, [3]), [1], keepdims=0)
        count = self._op("Max", self._axes("Unsqueeze", count, [2]), self._floats([1.0]))
        largest = self._node("ReduceMax", [first], axes=[1], keepdims=0)
        here = self._axes("ReduceSum", self._op("Mul", first, chosen), [1], keepdims=0)
        summary = self._node("Concat", [self._op("Div", total, count), largest, here], axis=2)
        peers = self._node(
            "Concat",
            [
                self._node("ReduceMean", [first], axes=[2], keepdims=0),
                self._node("ReduceMax", [first], axes=[2], keepdims=0),
            ],
            axis=2,
        )
        second = self._linear(first, "reader.again")
        over_kernels = self._axes("Unsqueeze", self._linear(summary, "reader.over_kernels"), [1])
        over_slices = self._axes("Unsqueeze", self._linear(peers, "reader.over_slices"), [2])
        second = self._op("Add", self._op("Add", second, over_kernels), over_slices)
        return self._op("Mul", self._op("Relu", second), present), summary

    def _rules(self, kernels: str, cells: str, chosen: str) -> tuple[str, str]:
        """Masks [B, K, S, 1]: 1 for a choice that is forbidden, and 1 for a kernel that may not be left."""
        by_kernel, by_cell = feature_names(Scope.KERNEL), feature_names(Scope.KERNEL_SLICE)
        ready = self._axes("Unsqueeze", self._part(kernels, 2, by_kernel.index("ready_ratio"), 1), [2])
        certified = self._part(cells, 3, by_cell.index("certified"), 1)
        alarm, hard = (
            self._above(self._part(cells, 3, by_cell.index(name), 1), 0.5)
            for name in ("guard", "hard_violated")
        )
        eligible = self._op("And", self._above(ready, 0.0), self._above(certified, 0.5))
        shut = self._node("Not", [self._op("And", eligible, self._node("Not", [hard]))])
        not_here = self._node("Not", [self._above(chosen, 0.5)])
        blocked = self._op("Or", shut, self._op("And", alarm, not_here))
        evidence = self._part(cells, 3, by_cell.index("evidence"), 1)
        most = self._node("ReduceMax", [evidence], axes=[2], keepdims=1)
        elsewhere = self._above(self._node("ReduceMax", [self._cast(alarm)], axes=[2], keepdims=1), 0.5)
        near = self._op("GreaterOrEqual", most, self._floats([REASON]))
        least = self._node("Where", [elsewhere, self._floats([PEER_REASON]), self._floats([OWN_REASON])])
        enough = self._op("GreaterOrEqual", evidence, least)
        lowered = self._op("And", self._op("Or", elsewhere, near), enough)
        reason = self._op("Or", alarm, lowered)
        calm = self._op("And", self._node("Not", [shut]), self._node("Not", [reason]))
        bound = self._op("And", calm, self._above(chosen, 0.5))
        return self._cast(blocked), self._cast(bound)

    # ------------------------------------------------------------ single nodes

    def _cast(self, name: str) -> str:
        return self._node("Cast", [name], to=TensorProto.FLOAT)

    def _above(self, name: str, limit: float) -> str:
        return self._op("Greater", name, self._floats([limit]))

    def _linear(self, name: str, module: str, suffix: str = "") -> str:
        matrix, bias = f"{module}.weight{suffix}", f"{module}.bias{suffix}"
        columns = np.ascontiguousarray(self._weights[matrix].T)
        out = self._op("MatMul", name, self._weight(matrix, columns))
        if bias not in self._weights:
            return out
        return self._op("Add", out, self._weight(bias, self._weights[bias]))

    def _weight(self, name: str, values: NDArray[np.float32]) -> str:
        self.places[name] = self._floats(values)
        return self.places[name]

    def _part(self, name: str, axis: int, start: int, length: int) -> str:
        ends = [self._ints([value]) for value in (start, start + length, axis)]
        return self._node("Slice", [name, *ends])

    def _shaped(self, name: str, shape: list[int]) -> str:
        return self._op("Reshape", name, self._ints(shape))

    def _axes(self, kind: str, name: str, axes: list[int], **attributes: object) -> str:
        return self._node(kind, [name, self._ints(axes)], "", **attributes)

    def _op(self, kind: str, left: str, *others: str) -> str:
        return self._node(kind, [left, *others])

    def _node(self, kind: str, inputs: list[str], output: str = "", **attributes: object) -> str:
        name = output or f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"{kind}-{name}", **attributes))
        return name

    def _floats(self, values: NDArray[np.float32] | list[float]) -> str:
        return self._constant(np.asarray(values, dtype=np.float32))

    def _ints(self, values: list[int]) -> str:
        return self._constant(np.asarray(values, dtype=np.int64))

    def _constant(self, values: NDArray[np.generic]) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(values, name))
        return name


class _RecurrentGraph(_Graph):
    """An LSTM cell, tanh, and a linear score per slice and choice; gates in torch's order."""

    @property
    def width(self) -> int:
        """Width of ``hidden`` and of ``cell``."""
        return int(self._weights["lstm_actor.weight_hh_l0"].shape[1])

    def build(self) -> None:
        """The whole network."""
        hidden = self._cell()
        latent = self._node("Tanh", [self._linear(hidden, "mlp_extractor.policy_net.0")])
        flat = self._linear(latent, "action_net")
        shape = self._ints([-1, self._layout.encoder.slices, self._layout.choices])
        self._node("Reshape", [flat, shape], OUTPUT)

    def _cell(self) -> str:
        """``torch.nn.LSTM`` of one layer, one step: the name of the new hidden state."""
        gates = self._op(
            "Add",
            self._linear(INPUT, "lstm_actor", "_ih_l0"),
            self._linear("hidden", "lstm_actor", "_hh_l0"),
        )
        let_in, keep, fresh, show = (
            self._node(kind, [self._part(gates, 1, place * self.width, self.width)])
            for place, kind in enumerate(("Sigmoid", "Sigmoid", "Tanh", "Sigmoid"))
        )
        kept, added = self._op("Mul", keep, "cell"), self._op("Mul", let_in, fresh)
        cell = self._node("Add", [kept, added], NETWORK_MEMORY["cell"])
        return self._node("Mul", [show, self._node("Tanh", [cell])], NETWORK_MEMORY["hidden"])
