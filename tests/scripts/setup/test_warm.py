"""Compiled caches are warm: the set-up step has compiled everything that a run needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from contracts.jit import FUNCTIONS
from scripts.setup.warm import SAY_S, STAGES, WARMED, CompileProgress
from tests.support.fleets.e5_world import write_suite

#: Runs in a separate process, because other tests compile for types that no run uses.
PROGRAM = """
import json, sys
from pathlib import Path
from numba.core.dispatcher import Dispatcher
from policies.registry import BASELINES
from scripts.e5.run.experiment import Options, plan_run, run
from policies.registry import make_configuration
from policies.supervised import shipped_meta, supervised_setup
from scripts.e5.run.jobs import compiled
from scripts.setup.warm import warm
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
watched = supervised_setup(shipped_meta(), make_configuration("threshold", world.setup))
for batch in (1, 2):
    run_episodes(world, ControllerDriver(watched), range(batch), batch=batch)
after = signatures()
new = {name: sorted(after[name] - before.get(name, set())) for name in after}
print(json.dumps({name: types for name, types in new.items() if types}))
"""


@pytest.mark.slow
def test_a_run_compiles_nothing_that_was_not_warmed(tmp_path: Path) -> None:
    """After ``warm()`` no policy and no scenario makes numba compile for another type."""
    write_suite(tmp_path, 90.0)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}


def test_two_processes_share_the_work_without_overlap() -> None:
    """Each stage has work for two, no function runs twice, and all functions of the world are included."""
    named = [function for stage in STAGES for functions in stage for function in functions]
    assert {len(stage) for stage in STAGES} == {2}
    assert len(set(named)) == len(named)
    assert {one for one in WARMED if one.__module__.startswith("simulator")} <= set(named)
    assert FUNCTIONS


#: Lets two processes compile a small part, then says what is known of it here and what is left to compile.
SHARED = """
import json
from contracts.jit import is_all_compiled, note_all_compiled, report_compilations
from scripts.setup import warm
from simulator.telemetry import scrapes
from simulator.truth import recorder
if __name__ == "__main__":
    warm.STAGES = (((scrapes.warm,), (recorder.warm,)),)
    there, left = [], []
    known = [is_all_compiled()]
    warm._compile_in_two(there.append)
    note_all_compiled()
    with report_compilations(left.append):
        scrapes.warm()
        recorder.warm()
    print(json.dumps([len(there) > 3, left, [*known, is_all_compiled()]]))
"""


@pytest.mark.slow
def test_what_two_processes_compiled_is_only_loaded_afterwards(tmp_path: Path) -> None:
    """The first process learns of every function that the others compile and compiles none itself."""
    (tmp_path / "shared.py").write_text(SHARED)
    own = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "shared.py")],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [True, [], [False, True]]


def test_progress_is_said_now_and_then_where_lines_stay(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If stderr is not a terminal, lines are some seconds apart at least."""
    clock = iter([0.0, SAY_S, SAY_S + 1.0, 2.0 * SAY_S, 11.0])
    monkeypatch.setattr("scripts.setup.warm.time.perf_counter", lambda: next(clock))
    progress = CompileProgress()
    for done in (1, 2, 3):
        progress(done, 9)
    progress.end()
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "setup: compiled 1 of about 9",
        "setup: compiled 3 of about 9",
        "setup: everything is compiled after 11 s",
    ]
