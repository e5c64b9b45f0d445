"""End to end: a policy is trained, certified, applied and drives real servers; its log trains the next."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from contracts.errors import DocumentError
from contracts.loading.files import sha256_of
from live.control.journal import read_log
from policies.artefacts import load_artefact
from scripts.cli.main import app
from tests.support.cluster.data_paths import DataPath, loaded
from tests.support.cluster.path_documents import contract, drill, policy, pool, route, write_scenario
from tests.support.documents.documents_written import write_yaml
from tests.support.documents.reduced_certificate import loosened

pytestmark = [
    pytest.mark.needs("kube_api", "kubectl", "vllm", "envoy", "aiohttp", "torch", "rl", "own_endpoints"),
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]

STRUCK = "chat-fp16-0"
#: Steps of the environment in training; seconds of log after the move.
STEPS, TICKS = 64, 10


@dataclass(frozen=True)
class Certified:
    """A user's own policy, with the meta-contract under which it was certified."""

    manifest: Path
    meta: Path


def selvage(*words: str | Path) -> str:
    """Run ``selvage words``, which must succeed; returns its output."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, f"{words}\n{result.output}\n{result.exception!r}"
    return result.stdout.strip()


def trained(folder: Path, scenario: Path) -> Path:
    """Zip of a Stable-Baselines3 PPO trained on the pool, as saved by its users."""
    import gymnasium
    from stable_baselines3 import PPO

    name = "selvage_fleet.environment:Selvage/FleetRouting-v0"
    own = gymnasium.make(name, scenarios=(scenario,), horizon_s=40.0)
    model: Any = PPO("MlpPolicy", own, device="cpu", n_steps=STEPS // 2, batch_size=16, seed=3)
    model.learn(STEPS)
    model.save(folder / "model.zip")
    own.close()
    return folder / "model.zip"


def certified(folder: Path) -> Certified:
    """Train, export, certify with a reduced suite of the pool, and complete the artefact."""
    scenario, meta = write_scenario(folder), folder / "certify" / "meta-contract.yaml"
    bare = selvage("policy", "export", "--sb3", trained(folder, scenario), "--name", "mine", "--out", folder)
    asked = ("--seeds", "2", "--quiet-days", "0.1", "--baseline", "fixed_known_good")
    selvage("policy", "suite", scenario, "--out", meta.parent, *asked)
    loosened(meta)
    proof = folder / "certificate.json"
    network = f"gym:onnx={folder / 'mine.onnx'}"
    selvage("policy", "certify", network, "--meta", meta, "--out", proof)
    words = ("--name", "mine", "--certificate", proof, "--meta", meta, "--out", folder / "certified")
    manifest = Path(selvage("policy", "export", bare, *words))
    assert selvage("policy", "show", manifest).endswith("accepted")
    return Certified(manifest=manifest, meta=meta)


def driven(path: DataPath, found: Certified) -> Path:
    """Apply the pinned policy and drill a server until it gets no requests; returns the decision log."""
    pinned = {"uri": str(found.manifest), "sha256": sha256_of(found.manifest)}
    own = policy(found.meta, policy="gym", artifact=pinned)
    with ExitStack() as stack:
        path.governed(stack, contract(), pool(), own, route(path.bench.namespace))
        stack.enter_context(loaded(path, rate_rps=5.0))
        path.until(lambda: path.bench.conditions()["Ready"][0] == "True", "Ready")
        assert path.bench.conditions()["FallbackActive"][0] == "False", path.told()
        path.apply(drill("bits", time_to_live_s=900.0))
        path.until(lambda: STRUCK not in path.gateway.history[-1].pods, "the struck pod was left out")
        left_at_s = path.gateway.history[-1].at_s
        path.until(lambda: path.gateway.shares("prose")["chat-fp32"] > 0.0, "prose overflowed")
        path.until(lambda: time.monotonic() - left_at_s > TICKS, "the log went on")
        deleted = path.kubectl.run("delete", f"--namespace={path.bench.namespace}", "faultdrill/bits")
        assert deleted.returncode == 0, deleted.stderr  # kubectl waits for the undo
    assert [one for one in path.tap.records if not one.complete] == []
    return path.folder / "decisions" / "chat"


def test_an_own_policy_drives_real_servers_and_its_log_trains_the_next(
    path: DataPath, tmp_path: Path
) -> None:
    """From a Stable-Baselines3 zip to a cluster, and from its decision log to the next candidate."""
    found = certified(tmp_path)
    log = driven(path, found)
    rows = read_log(log)
    ticks = [row for row in rows if row["kind"] == "tick"]
    assert {row["policy_id"].partition(":")[0] for row in ticks} == {"gym"}
    assert not any(row["demoted"] for row in ticks)
    assert any(one["replica"] == "fp16-0" for row in ticks for one in row["quarantined"])
    assert any(move["target"] == "fp32" for row in ticks for move in row["moves"] if row["executed"])
    assert "identical" in selvage("replay", log)
    next_one = tmp_path / "next"
    selvage(
        "offline", "train", log, "--out", next_one, "--name", "next", "--steps", "40", "--judge-steps", "20"
    )
    candidate = next_one / "next.yaml"
    with pytest.raises(DocumentError, match="certificate"):
        load_artefact(str(candidate))
    observed = policy(
        found.meta,
        policy="learned",
        mode="observe",
        artifact={"uri": str(candidate), "sha256": sha256_of(candidate)},
    )
    file = write_yaml(tmp_path / "next-route.yaml", observed)
    selvage("contract", "validate", candidate, file)
    again = selvage("replay", log, "--policy", file)
    assert f"{len(ticks)} ticks" in again
    assert yaml.safe_load(candidate.read_text())["spec"]["training"]["data"]
