"""Recurrent networks at work: torch's scores tick by tick, each fleet's own memory, and refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sb3_contrib")

from contracts.documents.artifact import RecurrentState, Training  # noqa: E402
from contracts.errors import DocumentError  # noqa: E402
from contracts.rng import stream  # noqa: E402
from controller.encoding.encoder import Encoder  # noqa: E402
from controller.initial import initial_state  # noqa: E402
from controller.state_json import state_from_json, state_to_json  # noqa: E402
from policies.artefacts import load_artefact, load_learned, with_certificate  # noqa: E402
from policies.certify.artifact_files import RunsAs, write_artefact  # noqa: E402
from policies.learned.choosing import InputLayout  # noqa: E402
from policies.learned.onnx_graph import recurrent_bytes  # noqa: E402
from policies.learned.runner import LearnedPolicy, ScoreRunner, learned_policy  # noqa: E402
from policies.registry import make_configuration  # noqa: E402
from policies.synthetic_fleet import synthetic_fleet  # noqa: E402
from policies.train.policy import one_thread  # noqa: E402
from scripts.train.env import ChoiceVecEnv, TrainingWorld  # noqa: E402
from scripts.train.recurrent import actor_weights, build_recurrent  # noqa: E402
from tests.policies.learned.test_runner import certificate  # noqa: E402
from tests.scripts.train.test_run import recipe_file, spec  # noqa: E402
from tests.support.fleets.seen import calm  # noqa: E402

FLEET = synthetic_fleet(3, 2, 6)
LAYOUT = InputLayout(encoder=Encoder(kernels_max=4, slices=2))
TRAINING = Training(command="a test", seeds=(0,))
WIDTH = 5


def content(width: int = WIDTH) -> bytes:
    """A network of random weights, large enough that its choices change."""
    rng, choices = stream(1, "recurrent"), LAYOUT.encoder.slices * LAYOUT.choices
    shapes = {
        "lstm_actor.weight_ih_l0": (4 * width, LAYOUT.size),
        "lstm_actor.weight_hh_l0": (4 * width, width),
        "lstm_actor.bias_ih_l0": (4 * width,),
        "lstm_actor.bias_hh_l0": (4 * width,),
        "mlp_extractor.policy_net.0.weight": (width, width),
        "mlp_extractor.policy_net.0.bias": (width,),
        "action_net.weight": (choices, width),
        "action_net.bias": (choices,),
    }
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return recurrent_bytes(weights, LAYOUT)


def rows(batch: int, ticks: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Random inputs [ticks, B, size]."""
    return stream(2, "inputs").normal(size=(ticks, batch, LAYOUT.size)).astype(np.float32)


def test_onnx_agrees_with_torch_over_a_rollout(tmp_path: Path) -> None:
    """Along a trained network's own episode every score and its memory are torch's to 1e-5."""
    one_thread()
    recipe = spec(tmp_path)
    env = ChoiceVecEnv(TrainingWorld(recipe, str(tmp_path / "tiny.yaml")))
    model = build_recurrent(env, recipe, 4, 20)
    model.learn(2 * 20 * env.num_envs)
    with torch.no_grad():
        for weights in model.policy.action_net.parameters():
            weights.mul_(30.0)
    runner = ScoreRunner(recurrent_bytes(actor_weights(model), env.world.layout))
    inputs, memory = env.world.begin_at(77, 0), runner.initial(env.num_envs)
    theirs = tuple(torch.zeros(1, env.num_envs, size) for size in runner.memory.values())
    starts, ticks = torch.zeros(env.num_envs), 0
    while not env.world.over:
        scores, memory = runner.step(inputs, memory)
        with torch.no_grad():
            drawn, theirs = model.policy.get_distribution(torch.from_numpy(inputs), theirs, starts)
        logits = np.stack([part.logits.numpy() for part in drawn.distribution], axis=1)
        shifted = scores - np.log(np.exp(scores).sum(axis=2, keepdims=True))
        np.testing.assert_allclose(shifted, logits, rtol=1e-5, atol=1e-5)
        for mine, other in zip(memory.values(), theirs, strict=True):
            np.testing.assert_allclose(np.asarray(mine, float), other[0].numpy(), rtol=1e-5, atol=1e-5)
        inputs, ticks = env.world.step(scores.argmax(axis=2)), ticks + 1
    assert ticks == 20
    assert all(np.asarray(array, float).any() for array in memory.values())


def test_a_fleets_memory_is_its_own_to_the_last_bit() -> None:
    """Scores and memory of a fleet are the same in a batch, alone, and whatever the other fleets' inputs."""
    runner, seen = ScoreRunner(content()), rows(3, 6)
    memory, alone = runner.initial(3), runner.initial(1)
    for tick in seen:
        scores, memory = runner.step(tick, memory)
        own, alone = runner.step(tick[1:2], alone)
        np.testing.assert_array_equal(scores[1:2], own)
    for name, array in alone.items():
        np.testing.assert_array_equal(memory[name][1:2], array)


def test_what_was_seen_before_decides() -> None:
    """The same input after another past has other scores; without a past they are the first tick's."""
    runner, (first, second) = ScoreRunner(content()), rows(1, 2)
    fresh, _ = runner.step(second, runner.initial(1))
    _, memory = runner.step(first, runner.initial(1))
    later, _ = runner.step(second, memory)
    assert np.abs(later - fresh).max() > 1e-3
    np.testing.assert_array_equal(runner(second), fresh)
    np.testing.assert_array_equal(runner(second, memory), later)


def test_the_memory_goes_through_the_controllers_state(tmp_path: Path) -> None:
    """Written as JSON and read back, the policy's memory has the same bits and proposes the same."""
    file = tmp_path / "p.onnx"
    file.write_bytes(content())
    setup = make_configuration(f"learned:onnx={file}", FLEET)
    policy = setup.policy
    assert isinstance(policy, LearnedPolicy)
    memory = policy.initial(2)
    for second in range(4):
        _, memory = policy.propose(calm(FLEET, 10.0 + second, batch=2), memory)
    text = state_to_json(replace(initial_state(setup, 2), policy=memory), setup)
    found = state_from_json(text, setup).policy
    assert {name: found[name].shape for name in ("hidden", "cell")} == {
        "hidden": (2, WIDTH),
        "cell": (2, WIDTH),
    }
    for name, array in memory.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    seen = calm(FLEET, 20.0, batch=2)
    np.testing.assert_array_equal(policy.propose(seen, found)[0].table, policy.propose(seen, memory)[0].table)


def test_the_manifest_says_what_is_remembered(tmp_path: Path) -> None:
    """With its sizes and a certificate it loads; with others, without any, or uncertified it is refused."""
    onnx, sizes = content(), RecurrentState(hidden=WIDTH, cell=WIDTH)
    bare = write_artefact(tmp_path, "p", onnx, "A test.", TRAINING, runs_as=RunsAs(recurrent=sizes))
    with pytest.raises(DocumentError, match="certificate"):
        load_learned(str(bare), FLEET)
    artefact = load_artefact(str(bare), allow_uncertified=True)
    assert artefact.manifest.spec.recurrent == sizes
    found = with_certificate(artefact, certificate(onnx, artefact.manifest.spec.encoding_version))
    held, runs_as = found.spec.certificate, RunsAs(recurrent=sizes)
    policy = load_learned(str(write_artefact(tmp_path, "p", onnx, "A test.", TRAINING, held, runs_as)), FLEET)
    assert policy.propose(calm(FLEET), policy.initial(1))[0].table.shape == (1, 2, 4)
    for other in (None, RecurrentState(hidden=WIDTH, cell=WIDTH + 1)):
        path = write_artefact(tmp_path, "p", onnx, "A test.", TRAINING, held, RunsAs(recurrent=other))
        with pytest.raises(DocumentError, match=r"spec\.recurrent"):
            load_learned(str(path), FLEET)


def test_a_tampered_recurrent_network_is_refused(tmp_path: Path) -> None:
    """Other bytes than the manifest's hash are refused before they are read."""
    sizes = RecurrentState(hidden=WIDTH, cell=WIDTH)
    path = write_artefact(tmp_path, "p", content(), "A test.", TRAINING, runs_as=RunsAs(recurrent=sizes))
    (tmp_path / "p.onnx").write_bytes(content(WIDTH + 1))
    with pytest.raises(DocumentError, match="sha256"):
        load_artefact(str(path), allow_uncertified=True)


def test_a_network_without_half_of_its_memory_is_refused() -> None:
    """An ONNX file that takes a memory and returns none, under these names, is refused."""
    onnx = pytest.importorskip("onnx")
    model = onnx.load_from_string(content())
    del model.graph.output[2]
    with pytest.raises(DocumentError, match="memory"):
        learned_policy(model.SerializeToString(), FLEET, "learned")


def test_export_of_a_recurrent_run_drives(tmp_path: Path) -> None:
    """Trained, exported twice to equal bytes, and run in the simulator without torch."""
    from typer.testing import CliRunner

    from scripts.cli.main import app
    from tests.support.fleets.synthetic import scenario_document, write_world

    runner, out, recipe = CliRunner(), tmp_path / "run", str(recipe_file(tmp_path, 1))
    words = ["train", "--recipe", recipe, "--seeds", "3", "--out", str(out), "--no-compare"]
    done = runner.invoke(app, [*words, "--algorithm", "recurrent-ppo"])
    assert done.exit_code == 0, done.output
    for place in "ab":
        words = ["policy", "export", str(out), "--recipe", str(out / "recipe.yaml"), "--out"]
        done = runner.invoke(app, [*words, str(tmp_path / place)])
        assert done.exit_code == 0, done.output
    for name in ("routing.onnx", "routing.yaml"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    manifest = load_artefact(str(tmp_path / "a" / "routing.yaml"), allow_uncertified=True).manifest
    assert manifest.spec.recurrent == RecurrentState(hidden=4, cell=4)
    (tmp_path / "world").mkdir()
    world = write_world(tmp_path / "world", scenario_document(horizon_s=20.0))
    configuration = f"learned:onnx={tmp_path / 'a' / 'routing.onnx'}"
    driven = runner.invoke(app, ["simulate", str(world), "--policy", configuration, "--json"])
    assert driven.exit_code == 0, driven.output
