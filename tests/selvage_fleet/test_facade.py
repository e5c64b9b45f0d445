"""The public interface: complete, typed, cheap to import, and extended by plug-ins."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import selvage_fleet as selvage
from contracts.assess.verdicts import ContractVerdict
from contracts.documents import KernelContract
from policies.rules.fixed import FixedPolicy
from tests.support.documents.plugins import write_plugin
from tests.support.fleets.e5_world import write_suite
from tests.support.paths import ROOT

CONTRACT = "package:contracts/library/serving-pool.yaml"
MODULES = sorted(path.stem for path in (ROOT / "selvage_fleet").glob("*.py") if path.stem != "__init__")

PLUGIN = '''
import selvage_fleet as selvage
from selvage_fleet import Channel, DetectorKind, Dose, FaultKind, PolicyKind
from policies.rules.fixed import FixedPolicy
from controller.detect.window import WindowDetector

PATIENCE = selvage.Parameter(default=30.0, unit="s", meaning="made up")
WINDOWS = selvage.Parameter(default=7.0, unit="1", meaning="made up")

def careful(fleet, policy_id, settings):
    return FixedPolicy(policy_id=f"{policy_id} {settings['patience_s']:g}")

selvage.register_policy("careful", PolicyKind(
    factory=careful,
    parameters={"patience_s": PATIENCE}, quarantine=False, shield=True, description="made up"))
selvage.register_detector("patient", DetectorKind(
    make=lambda fleet, values: WindowDetector(carry_windows=int(values["windows"])),
    parameters={"windows": WINDOWS}, description="made up"))
selvage.register_fault(FaultKind(
    name="thermal_throttle", channel=Channel.STEP_TIME,
    dose=Dose(quantity="factor", neutral=1.0, lowest=1.0, highest=10.0, default=4.0),
    live_injection="none", kubernetes_form="none", verification="none", undo="none"))

@selvage.register_metric("toxicity", family="S", unit="ratio", columns={"none": "toxicity@none"})
def toxicity(values):
    """Share of toxic answers."""
    return values.mean()
'''

PROGRAM = """
import json, sys
from pathlib import Path
import yaml
import selvage_fleet as selvage
from contracts.metrics import metric
from faults.catalogue import CATALOGUE
from policies.registry import make_configuration
folder = Path(sys.argv[1])
file = folder / "scenario.yaml"
fleet = selvage.load_scenario(file).setup
idle = "acme_fleet" not in sys.modules
written = yaml.safe_load(file.read_text())
fault = {"name": "hot", "kind": "thermal_throttle", "target": {"kernel": "bf16"}, "onset_s": 20.0}
written["spec"]["faults"] = [fault]
file.write_text(yaml.safe_dump(written))
document = selvage.load(file)
record = selvage.run_episode(file, "careful:patience_s=5")
print(json.dumps({
    "idle": idle,
    "policy": record.policy,
    "incident": record.incident.fault,
    "effect": CATALOGUE["thermal_throttle"].channel.value,
    "detector": make_configuration("hysteresis:detector=patient,windows=3", fleet).detector.carry_windows,
    "metric": metric("toxicity").summary,
    "kind": document.model_dump()["spec"]["faults"][0]["kind"],
}))
"""


def test_interface_is_sorted_and_complete() -> None:
    """``__all__`` is sorted, every name in it exists, and type checkers see the same names."""
    assert list(selvage.__all__) == sorted(selvage.__all__)
    assert all(getattr(selvage, name) is not None for name in selvage.__all__)
    tree = ast.parse((ROOT / "selvage_fleet" / "__init__.py").read_text())
    told = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module != "typing"]
    told = [node for node in told if str(node.module).startswith("selvage_fleet")]
    names = {alias.name for node in told for alias in node.names}
    assert names == set(selvage.__all__)


@pytest.mark.parametrize("module", [m for m in MODULES if m != "environment"])
def test_modules_of_the_interface_list_their_names(module: str) -> None:
    """Each module's ``__all__`` is sorted and holds names that exist."""
    found = import_module(f"selvage_fleet.{module}")
    assert list(found.__all__) == sorted(found.__all__)
    assert all(hasattr(found, name) for name in found.__all__)


def test_unknown_name_lists_the_known_ones() -> None:
    """An unknown name is an AttributeError that lists the public ones."""
    with pytest.raises(AttributeError, match="run_episode"):
        selvage.run_episodes  # noqa: B018


def test_import_is_cheap() -> None:
    """Importing the package imports none of the layers, nor numpy."""
    code = "import selvage_fleet, sys; sys.exit('numpy' in sys.modules or 'contracts' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_samples_are_judged_by_name_or_by_document() -> None:
    """A contract may be named or loaded; the verdict of a drifting kernel is the same."""
    contract = selvage.load(CONTRACT)
    assert isinstance(contract, KernelContract)
    profile = "package:contracts/library/profiles/awq4.yaml"
    by_name, by_document = selvage.judge(CONTRACT, profile), selvage.judge(contract, profile)
    assert by_name == by_document
    assert by_name.verdict is ContractVerdict.FAIL


def test_bad_document_is_refused_with_the_public_error(tmp_path: Path) -> None:
    """A document that cannot be loaded is a SelvageError with the next step."""
    with pytest.raises(selvage.SelvageError, match="check the path"):
        selvage.load(tmp_path / "nowhere.yaml")


def test_episode_runs_under_a_name_or_an_object(tmp_path: Path) -> None:
    """Equal arguments give equal records, and a policy need not be registered to drive."""
    write_suite(tmp_path, 60.0)
    world = selvage.load_scenario(tmp_path / "scenario.yaml")
    first, again = (selvage.run_episode(world, "threshold", seed=3) for _ in range(2))
    assert np.array_equal(first.answered, again.answered)
    assert selvage.run_episode(world, FixedPolicy(policy_id="mine"), seed=3).policy == "mine"
    assert selvage.make_controller("threshold", world.setup).setup.policy.policy_id == "threshold"


@pytest.mark.needs("gymnasium")
def test_environment_is_made_by_its_public_name() -> None:
    """Importing the module at the start of the name registers the environment."""
    import gymnasium

    module, _, name = "selvage_fleet.environment:Selvage/FleetRouting-v0".partition(":")
    assert name == import_module(module).ENV_ID
    spec = gymnasium.spec(name)
    assert (spec.entry_point, spec.vector_entry_point) == (
        "simulator.env.gym:FleetRoutingEnv",
        "simulator.env.vector:FleetRoutingVectorEnv",
    )


#: What Gymnasium's plug-in loader does with an installed distribution in the given folder.
LOADER = """
import sys
from importlib.metadata import entry_points
import gymnasium
from gymnasium.envs.registration import namespace
sys.path.insert(0, sys.argv[1])
(point,) = [p for p in entry_points(group="gymnasium.envs") if p.name == "Selvage"]
with namespace(point.name):
    register = point.load()
    register()
print(gymnasium.spec("Selvage/FleetRouting-v0").id)
"""


@pytest.mark.needs("gymnasium")
def test_environment_is_an_installed_entry_point(tmp_path: Path) -> None:
    """Read from installed metadata as a loader of the group does, the bare name is registered once."""
    point = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["gymnasium.envs"]
    installed = tmp_path / "selvage_fleet-0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: selvage-fleet\nVersion: 0\n")
    lines = [f"{name} = {target}" for name, target in point.items()]
    (installed / "entry_points.txt").write_text("\n".join(["[gymnasium.envs]", *lines]) + "\n")
    command = [sys.executable, "-W", "error::UserWarning", "-c", LOADER, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "Selvage/FleetRouting-v0"
    assert "Overriding" not in done.stderr


def test_plugins_extend_by_entry_points(tmp_path: Path) -> None:
    """An installed policy, fault, metric and detector work by name; unused ones are not loaded."""
    groups = {
        "selvage_fleet.policies": {"careful": "acme_fleet"},
        "selvage_fleet.faults": {"thermal_throttle": "acme_fleet"},
        "selvage_fleet.metrics": {"toxicity": "acme_fleet"},
        "selvage_fleet.detectors": {"patient": "acme_fleet"},
    }
    write_plugin(tmp_path / "acme", "acme_fleet", groups, PLUGIN)
    write_suite(tmp_path, 60.0)
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'acme')!r})\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "idle": True,
        "policy": "careful:patience_s=5 5",
        "incident": "hot",
        "effect": "step_time",
        "detector": 3,
        "metric": "Share of toxic answers.",
        "kind": "thermal_throttle",
    }
