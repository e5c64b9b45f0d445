"""ONNX files that hide data, never end or grow without limit are refused before they run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from contracts.errors import DocumentError
from contracts.loading.uris import resolve_uri
from policies.learned.onnx_check import OPERATORS, UnfitGraphError, check_onnx
from policies.learned.runner import ScoreRunner

SHIPPED = resolve_uri("package:contracts/library/policies/routing.onnx", "test").read_bytes()


def altered(change: Callable[[ModelProto], object]) -> bytes:
    """The shipped network after ``change``."""
    model = onnx.load_model_from_string(SHIPPED)
    change(model)
    content: bytes = model.SerializeToString()
    return content


def external(tensor: TensorProto, place: str) -> None:
    """Move the data of ``tensor`` into the file ``place``."""
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=place)
    tensor.ClearField("raw_data")


def outside(place: str) -> Callable[[ModelProto], None]:
    """Move the first weights into the file ``place``."""
    return lambda model: external(model.graph.initializer[0], place)


def hidden(kind: str) -> Callable[[ModelProto], None]:
    """A tensor with outside data in a place that no list of weights shows."""
    tensor = numpy_helper.from_array(np.zeros(4, dtype=np.float32), "w")
    external(tensor, "weights.bin")
    constant = helper.make_node("Constant", [], ["w"], value=tensor)
    nested = helper.make_graph([constant], "inner", [], [helper.make_tensor_value_info("w", 1, [4])])

    def change(model: ModelProto) -> None:
        if kind == "attribute":
            model.graph.node.append(constant)
        elif kind == "initializer of a nested graph":
            inner = helper.make_graph([], "inner", [], nested.output, [tensor])
            model.graph.node.append(
                helper.make_node("If", ["n1"], ["x"], then_branch=inner, else_branch=inner)
            )
        elif kind == "function":
            opset = [helper.make_opsetid("", 17)]
            model.functions.append(helper.make_function("mine", "f", [], ["w"], [constant], opset))
        else:
            body = helper.make_node("Loop", ["", ""], ["x"], body=nested)
            model.graph.node.append(body)

    return change


def fixed_batch(model: ModelProto) -> None:
    """The input takes exactly one fleet."""
    axis = model.graph.input[0].type.tensor_type.shape.dim[0]
    axis.ClearField("dim_param")
    axis.dim_value = 1


def without_shape(model: ModelProto) -> None:
    """The input has no size."""
    model.graph.input[0].type.tensor_type.ClearField("shape")


def huge(model: ModelProto) -> None:
    """Two broadcasts make 10 thousand million numbers of a column and a row."""
    shapes = {"column": (100_000, 1), "row": (1, 100_000)}
    for name, shape in shapes.items():
        model.graph.initializer.append(numpy_helper.from_array(np.zeros(shape, np.float32), name))
    model.graph.node.append(helper.make_node("Add", ["column", "row"], ["huge"]))


def foreign(model: ModelProto) -> None:
    """An operator from a foreign library."""
    model.graph.node[0].domain = "com.microsoft"


def newer(model: ModelProto) -> None:
    """Operators of another version."""
    model.opset_import[0].version = 21


def unknown_operator(model: ModelProto) -> None:
    """Random numbers."""
    model.graph.node.append(helper.make_node("RandomNormal", [], ["x"], shape=[4]))


CASES: dict[str, tuple[Callable[[ModelProto], None], str]] = {
    "weights outside": (outside("weights.bin"), "in the file itself"),
    "weights above": (outside("../weights.bin"), "in the file itself"),
    "in an attribute": (hidden("attribute"), "operators of"),
    "in a nested graph": (hidden("initializer of a nested graph"), "operators of"),
    "in a function": (hidden("function"), "no functions"),
    "in a loop": (hidden("loop"), "operators of"),
    "fixed batch": (fixed_batch, "an open batch"),
    "no shape": (without_shape, "a shape"),
    "huge": (huge, "numbers for one fleet"),
    "foreign": (foreign, "operators of"),
    "newer": (newer, "operators of version 17"),
    "unknown operator": (unknown_operator, "operators of"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_file_that_hides_or_grows_is_refused(case: str) -> None:
    """Each way out of the file's hash, and each unbounded graph, is refused by name."""
    change, expected = CASES[case]
    with pytest.raises(DocumentError, match=expected):
        ScoreRunner(altered(change))


def test_weights_beside_the_working_directory_are_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A weights file of the right size in the working directory changes nothing: the network is refused."""
    first = onnx.load_model_from_string(SHIPPED).graph.initializer[0]
    (tmp_path / "weights.bin").write_bytes(numpy_helper.to_array(first).tobytes())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DocumentError, match="external data"):
        ScoreRunner(altered(outside("weights.bin")))


def test_the_shipped_network_is_accepted_and_its_operators_are_known() -> None:
    """The shipped network passes the check, and uses only operators on the list."""
    check_onnx(SHIPPED)
    assert {node.op_type for node in onnx.load_model_from_string(SHIPPED).graph.node} <= OPERATORS


@pytest.mark.parametrize("content", [b"", b"\x00" * 64, b"PK\x03\x04", SHIPPED[:1000], SHIPPED[:-1]])
def test_what_is_no_network_is_refused(content: bytes) -> None:
    """Empty, foreign and cut-off files are refused by one error."""
    with pytest.raises(UnfitGraphError):
        check_onnx(content)
