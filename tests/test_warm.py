"""Compiled caches are warm: what a run needs, the set-up step has compiled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e5_world import write_suite

#: Runs in a process of its own, because other tests compile for types that no run uses.
PROGRAM = """
import json, sys
from pathlib import Path
from numba.core.dispatcher import Dispatcher
from policies.baselines import BASELINES
from scripts.e5 import Options, plan_run, run
from policies.baselines import make_arm
from policies.supervised import shipped_meta, under
from scripts.e5_jobs import compiled
from scripts.warm import warm
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes

def signatures():
    found = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("contracts", "controller", "policies", "simulator"):
            for value in vars(module).values():
                if isinstance(value, Dispatcher):
                    found[f"{value.__module__}.{value.__name__}"] = {str(s) for s in value.signatures}
    return found

folder = Path(sys.argv[1])
warm()
before = signatures()
suite = folder / "suite.yaml"
options = Options(out=folder / "out", suite=suite, policies=tuple(BASELINES), seeds=3, batch=2, jobs=1)
plan = plan_run(options)
run(plan, options, lambda result: None)
world = compiled(plan.entries[0])
watched = under(shipped_meta(), make_arm("threshold", world.setup))
for batch in (1, 2):
    run_episodes(world, ControllerDriver(watched), range(batch), batch=batch)
after = signatures()
new = {name: sorted(after[name] - before.get(name, set())) for name in after}
print(json.dumps({name: types for name, types in new.items() if types}))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_compiles_nothing_that_was_not_warmed(tmp_path: Path) -> None:
    """After ``warm()`` no policy and no scenario makes numba compile for another type."""
    write_suite(tmp_path, 90.0)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}
