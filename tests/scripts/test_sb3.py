"""Plain Stable-Baselines3 policies as configurations of this project."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from typer.testing import CliRunner

from contracts.errors import DocumentError
from scripts.cli.main import app
from scripts.sb3 import bytes_of_model, bytes_of_zip

pytestmark = [pytest.mark.needs("torch", "stable_baselines3", "gymnasium"), pytest.mark.slow]
RUN = CliRunner()


def trained(size: int, actions: int, **policy: object) -> Any:
    """A fresh PPO on spaces of these sizes."""
    import gymnasium
    from stable_baselines3 import PPO

    class Still(gymnasium.Env):  # type: ignore[misc]
        observation_space = gymnasium.spaces.Box(-1.0, 1.0, (size,), np.float32)
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (actions,), np.float32)

        def reset(self, **_: object) -> tuple[np.ndarray, dict[str, Any]]:
            return np.zeros(size, np.float32), {}

    return PPO("MlpPolicy", Still(), device="cpu", n_steps=8, batch_size=8, policy_kwargs=policy)


def action(content: bytes, seen: np.ndarray) -> np.ndarray:
    """The ONNX file's answer."""
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["action"], {"observation": seen})[0])


def test_the_file_acts_as_the_policy_does(tmp_path: Path) -> None:
    """Saved or in memory, with own layers and activation or the defaults: the same actions."""
    import torch

    seen = np.random.default_rng(3).normal(size=(7, 12)).astype(np.float32)
    for policy in ({}, {"net_arch": [9, 5], "activation_fn": torch.nn.ReLU}):
        model = trained(12, 6, **policy)
        model.save(tmp_path / "model")
        wanted = model.policy.get_distribution(torch.from_numpy(seen)).mode().detach().numpy()
        assert action(bytes_of_zip(tmp_path / "model.zip"), seen) == pytest.approx(wanted, abs=1e-5)
        assert bytes_of_zip(tmp_path / "model.zip") == bytes_of_model(model)


class Harm:
    """Writes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return (open, (self.path, "w"))


def test_no_code_of_a_zip_is_run(tmp_path: Path) -> None:
    """A zip with code to unpickle in its weights or data is refused, or read without it; no code is run."""
    harm = pickle.dumps(Harm(str(tmp_path / "harmed")))
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr("data", json.dumps({"policy_kwargs": {":serialized:": harm.hex()}}))
        archive.writestr("policy.pth", harm)
    with pytest.raises(DocumentError, match="plain arrays"):
        bytes_of_zip(tmp_path / "bad.zip")
    assert not (tmp_path / "harmed").exists()


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    """An unknown activation, and a file that is not such a zip, are named."""
    import torch

    trained(4, 2, activation_fn=torch.nn.Softsign).save(tmp_path / "odd")
    with pytest.raises(DocumentError, match="Softsign"):
        bytes_of_zip(tmp_path / "odd.zip")
    (tmp_path / "no.zip").write_text("text")
    with pytest.raises(DocumentError, match="save"):
        bytes_of_zip(tmp_path / "no.zip")


def test_a_policy_of_the_environment_runs_in_the_simulation(tmp_path: Path) -> None:
    """Exported by the command, it drives a scenario as ``gym:onnx=FILE``; another pool's is refused."""
    from controller.encoding.encoder import Encoder

    encoder = Encoder(kernels_max=8, slices=5)
    trained(encoder.size, encoder.action_size).save(tmp_path / "model")
    words = [
        "policy",
        "export",
        "--sb3",
        str(tmp_path / "model.zip"),
        "--name",
        "mine",
        "--out",
        str(tmp_path),
    ]
    exported = RUN.invoke(app, words)
    assert exported.exit_code == 0
    assert exported.output.strip() == str(tmp_path / "mine.yaml")
    scenario = "package:contracts/library/scenarios/silent-requantise.yaml"
    run = ["simulate", scenario, "--json", "--policy"]
    done = RUN.invoke(app, [*run, f"gym:onnx={tmp_path / 'mine.onnx'}"])
    assert done.exit_code == 0, done.output
    trained(7, 10).save(tmp_path / "other")
    RUN.invoke(app, [*words[:3], str(tmp_path / "other.zip"), *words[4:]])
    refused = RUN.invoke(app, [*run, f"gym:onnx={tmp_path / 'mine.onnx'}"])
    assert refused.exit_code == 2
    assert "inputs" in refused.output or "outputs" in refused.output
