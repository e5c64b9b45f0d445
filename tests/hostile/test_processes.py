"""However a run with several processes ends, none of them remains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from contracts.loading.shipped import SHIPPED_ARTEFACT
from tests.scripts.test_guard import heed_hangup, is_running
from tests.support.fleets.e5_world import write_suite
from tests.support.paths import ROOT
from tests.support.waiting import until


def children(process: int) -> set[int]:
    """Descendants of ``process``."""
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    own = {int(child) for task in tasks for child in task.read_text().split()}
    return own.union(*(children(child) for child in own))


#: Commands that would run for hours, without their output option.
LONG = {
    "tune": ("tune", "hysteresis", "--steps", "100000000"),
    "certify": ("policy", "certify", "hysteresis"),
    "train": ("train", "--seeds", "0-1"),
    "evaluate": ("policy", "evaluate", SHIPPED_ARTEFACT),
}
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGKILL: -9}


def end_with_workers(words: list[str], number: signal.Signals, folder: Path) -> None:
    """Start ``selvage WORDS --jobs 2``, send it ``number`` once it has workers, and check that all end."""
    run = subprocess.Popen(
        [sys.executable, "-m", "scripts.cli.main", *words, "--jobs", "2"],
        cwd=ROOT,
        env={**os.environ, "XDG_STATE_HOME": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=heed_hangup,
    )
    seen: set[int] = set()
    try:
        until(lambda: run.poll() is not None or len(children(run.pid)) >= 3, 400.0, lambda: "no workers")
        seen = children(run.pid)
        assert run.poll() is None
        run.send_signal(number)
        assert run.wait(timeout=120) == CODES[number]
        until(lambda: not any(is_running(one) for one in seen), 240.0, lambda: "a worker outlived the run")
    finally:
        run.kill()
        run.wait()
        for one in filter(is_running, seen):
            os.kill(one, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("number", list(CODES))
def test_no_worker_outlives_an_experiment(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C, TERM, HUP and KILL of ``e5 --jobs 2`` leave no process behind."""
    suite = write_suite(tmp_path, 7200.0)
    end_with_workers(["e5", "--suite", str(suite), "--out", str(tmp_path / "out")], number, tmp_path)


@pytest.mark.slow
@pytest.mark.needs("ray")
def test_no_worker_of_ray_outlives_an_experiment(tmp_path: Path) -> None:
    """A Ray cluster started by a run ends with the run, killed or not."""
    suite = write_suite(tmp_path, 7200.0)
    words = ["e5", "--suite", str(suite), "--backend", "ray", "--out", str(tmp_path / "out")]
    end_with_workers(words, signal.SIGKILL, tmp_path)


@pytest.mark.slow
@pytest.mark.needs("rl")
@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("tune", signal.SIGKILL),
        ("tune", signal.SIGTERM),
        ("certify", signal.SIGKILL),
        ("certify", signal.SIGHUP),
        ("train", signal.SIGKILL),
        ("evaluate", signal.SIGINT),
    ],
)
def test_no_worker_outlives_a_search(command: str, number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C, TERM, HUP and KILL of searches, certifications, training and evaluation leave none either."""
    end_with_workers([*LONG[command], "--out", str(tmp_path / "out")], number, tmp_path)
