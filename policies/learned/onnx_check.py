"""Restrictions on an ONNX file, checked before anything of it runs: a plain graph of known operators.

A certificate is bound to a policy by the sha256 of its file, so everything that decides must be in the file.
Refused are tensors with external data, and everything that could hide such a tensor (attributes with tensors
or graphs, functions, sparse tensors, training parts). Control flow and foreign operators are refused because
their computations are unbounded. Inputs without a shape or with a fixed batch are refused because they could
not be fed. Refused as well are graphs with values that, inferred for one fleet, exceed ``MOST_NUMBERS``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx
from onnx import AttributeProto, ModelProto, TensorProto, ValueInfoProto, shape_inference

from contracts.regular_files import ONNX_BYTES

#: Operators that ``policies.learned.onnx_graph`` and ``dense_graph`` write; a test compares them.
OPERATORS = frozenset(
    {
        *("Add", "Sub", "Mul", "Div", "Max", "MatMul", "Relu", "Sigmoid", "Tanh", "Cast", "Where"),
        *("And", "Or", "Not", "Greater", "GreaterOrEqual", "ReduceSum", "ReduceMean", "ReduceMax"),
        *("Concat", "Slice", "Reshape", "Transpose", "Squeeze", "Unsqueeze"),
        *("Gemm", "Elu", "LeakyRelu"),
    }
)
#: Supported versions of the operators and of the file format.
OPSET, IR_VERSIONS = 17, range(7, 11)
#: Most numbers in all values of one fleet together, without weights: 64 MB.
MOST_NUMBERS = 2**24
MOST_NODES = 4096

_PLAIN = (AttributeProto.INT, AttributeProto.INTS)
_TYPES = (TensorProto.FLOAT, TensorProto.INT64)


class UnfitGraphError(ValueError):
    """The file is not a graph of this kind; the message states what was expected and what was found."""

    def __init__(self, expected: str, actual: str) -> None:
        super().__init__(f"expected {expected}, got {actual}")
        self.expected, self.actual = expected, actual


def check_onnx(content: bytes) -> None:
    """UnfitGraphError unless ``content`` is a graph that satisfies the module's restrictions."""
    if len(content) > ONNX_BYTES:
        raise UnfitGraphError(f"at most {ONNX_BYTES} bytes", f"{len(content)}")
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # each implementation of protobuf's parser raises its own types
        raise UnfitGraphError("an ONNX network", str(error)[:200] or type(error).__name__) from None
    for expected, actual in _findings(model):
        raise UnfitGraphError(expected, actual[:200])
    _check_sizes(model)


def _findings(model: ModelProto) -> Iterator[tuple[str, str]]:
    """Violations in the file, as (expected, found); cheap checks first."""
    graph = model.graph
    if model.ir_version not in IR_VERSIONS:
        yield f"IR version {IR_VERSIONS[0]} to {IR_VERSIONS[-1]}", f"{model.ir_version}"
    versions = [(one.domain, one.version) for one in model.opset_import]
    if versions not in ([("", OPSET)], [("ai.onnx", OPSET)]):
        yield f"operators of version {OPSET} and no other domain", f"{versions}"
    for name, part in (
        ("functions", model.functions),
        ("training parts", model.training_info),
        ("sparse tensors", graph.sparse_initializer),
        ("quantisation notes", graph.quantization_annotation),
    ):
        if part:
            yield f"no {name}", f"{len(part)}"
    if len(graph.node) > MOST_NODES:
        yield f"at most {MOST_NODES} nodes", f"{len(graph.node)}"
    yield from _nodes(graph.node)
    for tensor in graph.initializer:
        yield from _tensor(tensor)
    for value in (*graph.input, *graph.output):
        yield from _shape(value)


def _nodes(nodes: Any) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if node.op_type not in OPERATORS or node.domain not in ("", "ai.onnx"):
            yield f"operators of {', '.join(sorted(OPERATORS))}", f"{node.domain} {node.op_type}".strip()
        for attribute in node.attribute:
            if attribute.type not in _PLAIN or attribute.ref_attr_name:
                kind = AttributeProto.AttributeType.Name(attribute.type)
                yield "whole numbers as attributes", f"{kind} in {node.op_type}.{attribute.name}"


def _tensor(tensor: TensorProto) -> Iterator[tuple[str, str]]:
    if tensor.data_location != TensorProto.DEFAULT or tensor.external_data or tensor.HasField("segment"):
        yield "every weight in the file itself", f"external data for {tensor.name!r}"
    if tensor.data_type not in _TYPES:
        yield "weights of type float or int64", f"type {tensor.data_type} for {tensor.name!r}"


def _shape(value: ValueInfoProto) -> Iterator[tuple[str, str]]:
    """Float arrays with an open batch as first axis and known sizes for the others."""
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or tensor.elem_type != TensorProto.FLOAT:
        yield f"{value.name!r} as floats", "another type"
    if not tensor.HasField("shape") or len(tensor.shape.dim) < 2:
        yield f"a shape [batch, ...] of {value.name!r}", "none" if not tensor.HasField("shape") else "less"
        return
    batch, *others = tensor.shape.dim
    if batch.HasField("dim_value"):
        yield f"an open batch in {value.name!r}", f"{batch.dim_value}"
    if not all(one.dim_value > 0 for one in others):
        yield f"known sizes behind the batch in {value.name!r}", "an open one"


def _check_sizes(model: ModelProto) -> None:
    """UnfitGraphError if the values of one fleet are too many, or their sizes are unknown.

    The library infers every shape with a batch of 1.
    """
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1
    del model.graph.value_info[:]  # the file's own statements are not trusted
    try:
        onnx.checker.check_model(model)
        inferred = shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except Exception as error:  # checker and inference raise types of their own, and others
        raise UnfitGraphError("a valid graph", str(error).strip().splitlines()[0][:200]) from None
    values = {value.name: _size(value) for value in inferred.graph.value_info}
    unknown = [
        name for node in model.graph.node for name in node.output if name and values.get(name, 1) is None
    ]
    if unknown or any(size is None for size in values.values()):
        raise UnfitGraphError("values whose sizes are known", f"{unknown[:1]}")
    if sum(size or 0 for size in values.values()) > MOST_NUMBERS:
        raise UnfitGraphError(f"at most {MOST_NUMBERS} numbers for one fleet", "more")


def _size(value: ValueInfoProto) -> int | None:
    """Number of elements of the value; None if an axis is open."""
    size = 1
    for axis in value.type.tensor_type.shape.dim:
        if not axis.HasField("dim_value") or axis.dim_value < 0:
            return None
        size *= axis.dim_value
    return size if value.type.tensor_type.HasField("shape") else None
