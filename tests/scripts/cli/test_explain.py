"""``selvage explain``: clauses behind moves, the baseline's alternative, features behind a learned choice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from controller.encoding.encoder import Encoder
from controller.options import ControllerSetup
from policies.learned.choosing import InputLayout
from policies.learned.runner import learned_policy
from policies.registry import make_configuration, make_policy
from scripts.cli.main import app
from scripts.cli.run_reports.explaining import Explained, Wanted, from_log, from_scenario
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import load_scenario
from tests.support.fleets.synthetic import scenario_document, write_world

FAULT = {
    "name": "bad",
    "kind": "requantise",
    "condition": "requantise-w3",
    "onset_s": 50.0,
    "target": {"kernel": "bf16"},
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two minutes in which the home kernel of some slices is re-quantised."""
    folder = tmp_path_factory.mktemp("explain")
    return write_world(folder, scenario_document(faults=[FAULT], horizon_s=150.0))


@pytest.fixture(scope="module")
def world(file: Path) -> CompiledScenario:
    """The same, ready to run."""
    return load_scenario(file)


@pytest.fixture(scope="module")
def found(world: CompiledScenario) -> Explained:
    """The incident under the threshold policy, beside the fixed kernel."""
    setup = make_configuration("threshold", world.setup)
    return from_scenario(world, setup, make_policy("fixed", world.setup), 3, Wanted())


def test_the_incident_is_explained_by_the_fault(found: Explained, world: CompiledScenario) -> None:
    """The first moves are due to a numeric clause on the struck kernel, with evidence beyond its limit;
    every moved weight has a reason.
    """
    assert found.incident is not None
    assert found.incident["detected"]
    first = found.ticks[0]
    lost = [move for move in first["moves"] if move["after"] < move["before"]]
    assert {move["target"] for move in lost} == {"bf16"}
    numeric = [clause for clause in world.contract.clause_ids if clause.startswith(("N-", "S-"))]
    assert all(any(r == f"{c} on bf16" for c in numeric for r in move["because"]) for move in lost)
    assert any(e["kernel"] == "bf16" and e["estimate"] > e["limit"] for e in first["evidence"])
    assert all(move["because"] for tick in found.ticks for move in tick["moves"])


def test_weights_add_up(found: Explained) -> None:
    """Weight lost in one place of a row is gained in others, and the new weight is the proposal plus the
    forced change.
    """
    for tick in found.ticks:
        for name in {move["slice"] for move in tick["moves"]}:
            row = [move for move in tick["moves"] if move["slice"] == name]
            assert sum(m["after"] - m["before"] for m in row) == pytest.approx(0.0, abs=1e-9)
            assert all(m["after"] == pytest.approx(m["proposed"] + m["forced"]) for m in row)


def test_what_if_is_what_the_baseline_proposes(world: CompiledScenario, found: Explained) -> None:
    """The fixed kernel disagrees exactly where traffic left home; a policy never disagrees with itself."""
    moved = found.ticks[0]
    home = [world.layout.kernels[k] for k in world.setup.home]
    for entry in moved["what_if"]:
        at_home = home[world.layout.slices.index(entry["slice"])] == entry["target"]
        assert entry["baseline"] == (1.0 if at_home else 0.0)
    assert {entry["slice"] for entry in moved["what_if"]} == {
        m["slice"] for m in moved["moves"] if m["proposed"] != m["before"]
    }
    setup = make_configuration("hysteresis", world.setup)
    itself = from_scenario(world, setup, make_policy("hysteresis", world.setup), 3, Wanted())
    assert itself.ticks
    assert not any(tick["what_if"] for tick in itself.ticks)


def test_a_tick_reads_the_same_in_the_log_and_made_again(file: Path, tmp_path: Path) -> None:
    """Simulated with a log, or repeated from the seed: the same record of the same tick."""
    run = CliRunner().invoke
    out = tmp_path / "out"
    arguments = ["simulate", str(file), "--policy", "threshold", "--first-seed", "3", "--out", str(out)]
    assert run(app, arguments).exit_code == 0
    arguments = ["explain", str(file), "--policy", "threshold", "--seed", "3", "--baseline", "", "--json"]
    done = run(app, arguments)
    assert done.exit_code == 0, done.output
    again = json.loads(done.stdout)
    logged = from_log(out / "decisions.jsonl", 3, None)
    wanted = [{k: v for k, v in tick.items() if k != "attribution"} for tick in again["ticks"]]
    by_tick = {line["tick"]: line for line in logged.ticks}
    assert wanted
    for tick in wanted:
        if tick["moves"]:
            assert {k: v for k, v in by_tick[tick["tick"]].items() if k != "seed"} == tick
    one = from_log(out / "decisions.jsonl", 3, 77.4)
    assert [tick["now_s"] for tick in one.ticks] == [77.0]
    assert from_log(out, 3, None).ticks == logged.ticks, "the folder stands for the log in it"


def test_the_text_names_the_moves_and_their_causes(file: Path) -> None:
    """The text names incident, slice, clause, proposal and baseline; a tick can be asked for alone."""
    arguments = ["explain", str(file), "--policy", "threshold", "--seed", "3", "--baseline", "fixed"]
    done = CliRunner().invoke(app, [*arguments, "--supervised"])
    assert done.exit_code == 0, done.output
    for words in ("incident bad: onset 50 s", "because: ", "proposed: ", "baseline: ", "alarm "):
        assert words in done.stdout
    one = CliRunner().invoke(app, [*arguments, "--at", "40"])
    assert one.exit_code == 0
    assert "40 s, plan" in one.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["nowhere.yaml"],
        ["nowhere.jsonl"],
        ["SCENARIO", "--policy", "nope"],
        ["SCENARIO", "--method", "guess"],
        ["SCENARIO", "--baseline", "nope"],
        ["LOG"],
    ],
)
def test_what_cannot_be_explained_is_refused(file: Path, tmp_path: Path, arguments: list[str]) -> None:
    """Missing files, unknown policies or methods, and files that are not logs: exit code 2, a message."""
    log = tmp_path / "other.jsonl"
    log.write_text('{"now_s": 1}\n')
    names = {"SCENARIO": str(file), "LOG": str(log)}
    done = CliRunner().invoke(app, ["explain", *[names.get(a, a) for a in arguments]])
    assert done.exit_code == 2
    assert "error: " in done.output


def linear_onnx(layout: InputLayout, weights: NDArray[np.float32]) -> bytes:
    """An ONNX file with ``scores = inputs weights``, weights float32 [size, S * choices]."""
    from onnx import TensorProto, helper, numpy_helper

    slices = layout.encoder.slices
    shape = numpy_helper.from_array(np.array([-1, slices, layout.choices], dtype=np.int64), "shape")
    nodes = [
        helper.make_node("MatMul", ["inputs", "weights"], ["flat"]),
        helper.make_node("Reshape", ["flat", "shape"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("inputs", TensorProto.FLOAT, ["batch", layout.size])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", slices, layout.choices])],
        [numpy_helper.from_array(weights, "weights"), shape],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    content: bytes = model.SerializeToString()
    return content


def linear_configuration(
    world: CompiledScenario, seed: int
) -> tuple[ControllerSetup, NDArray[np.float64], list[str]]:
    """A learned policy with a random linear network; its weights [size, S, choices] and feature names."""
    encoder = Encoder(kernels_max=4, slices=len(world.layout.slices))
    layout = InputLayout(encoder=encoder)
    drawn = np.random.Generator(np.random.PCG64(seed)).normal(size=(layout.size, 5 * encoder.slices))
    weights = drawn.astype(np.float32)
    policy = learned_policy(linear_onnx(layout, weights), world.setup, "linear")
    setup = replace(make_configuration("threshold", world.setup), policy=policy)
    return setup, weights.reshape(layout.size, encoder.slices, 5).astype(np.float64), list(layout.names())


@pytest.mark.needs("rl")
@pytest.mark.parametrize("method", ["occlusion", "gradients"])
def test_a_linear_policy_is_explained_by_its_weights(world: CompiledScenario, method: str) -> None:
    """Every effect is the weight of the margin times the feature's difference to the quiet tick, and
    features carry the fleet's own names.
    """
    setup, weights, _ = linear_configuration(world, 5)
    wanted = Wanted(at_s=100.0, method=method, features=100000, reference_s=30.0)
    tick = from_scenario(world, setup, None, 3, wanted).ticks[-1]
    assert [part["slice"] for part in tick["attribution"]] == list(world.layout.slices)
    for s, part in enumerate(tick["attribution"]):
        columns = [*world.layout.kernels, "padding3", "shed"]
        chosen, over = columns.index(part["chosen"]), columns.index(part["over"])
        row = weights[:, s, chosen] - weights[:, s, over]
        compare(part["features"], row, setup)


def compare(features: list[dict[str, Any]], row: NDArray[np.float64], setup: ControllerSetup) -> None:
    """Effects of ``features`` against ``row`` times their differences."""
    from scripts.cli.run_reports.explaining import named

    layout = InputLayout(encoder=Encoder(kernels_max=4, slices=len(setup.layout.slices)))
    place = {name: i for i, name in enumerate(named(layout.names(), setup))}
    assert len(features) > 20
    for feature in features:
        expected = row[place[feature["name"]]] * (feature["value"] - feature["reference"])
        assert feature["effect"] == pytest.approx(expected, rel=1e-3, abs=2e-4)
    assert any(feature["name"].startswith("bf16.code.") for feature in features)
