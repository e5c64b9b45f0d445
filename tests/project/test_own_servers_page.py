"""The walkthrough for own servers, block by block, with two real servers of the shipped model."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from contracts.documents import KernelProfile, RoutePolicy
from contracts.loading.loader import load_as
from live.measure.checkpoint import SHIPPED_MODEL
from tests.support.documents.reduced_certificate import loosened
from tests.support.paths import ROOT
from tests.support.servers.vllm_servers import free_port, serving

PAGE = (ROOT / "docs" / "own-servers.md").read_text()
BLOCK = re.compile(r"^```(\w+) (walk|server|file=\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: ``make nightly`` runs the page unchanged, and prints the time of every command.
WHOLE = os.environ.get("SELVAGE_WALK") == "whole"
#: Step times for which one measurement suffices; they are spread over two fifths of the seconds.
QUICK = ("--step-target", "1", "--step-seconds", "75")
#: Parts of measuring and certifying that the tests leave out: a busy machine's clocks would fail them.
REDUCED = {
    "profile --endpoint": ["--repeats", "1", "--step-half-width", "10", *QUICK],
    "policy suite": ["--seeds", "2", "--quiet-days", "0.1"],
}
#: The same for training.
REDUCED_TEXT = {
    "horizon_s: 301.0": "horizon_s: 61.0",
    "fleets: 16": "fleets: 2",
    "rounds: 2, caution: [2.0, 3.0, 5.0]": "rounds: 1, caution: [2.0]",
    "epochs: 2, minibatches: 4": "epochs: 1, minibatches: 2",
    "episodes: 16, horizon_s: 400.0": "episodes: 2, horizon_s: 61.0",
}


def blocks(kind: str) -> list[str]:
    """Bodies of the page's blocks of a kind."""
    return [body for _, marked, body in BLOCK.findall(PAGE) if marked == kind]


def test_every_block_of_the_page_is_executed() -> None:
    """Every block of the page is executed by the walk."""
    assert len(re.findall(r"^```\w+", PAGE, re.MULTILINE)) == len(BLOCK.findall(PAGE))


@pytest.mark.needs("vllm", "torch", "transformers", "rl")
@pytest.mark.slow
@pytest.mark.timeout(14400 if WHOLE else 3000)
def test_the_walk_from_two_servers_to_a_certified_policy(tmp_path: Path) -> None:
    """Each block in order, in an empty folder; every program and command exits with 0."""
    (tmp_path / "refmodel").symlink_to(SHIPPED_MODEL)
    ports = {"8001": str(free_port()), "8002": str(free_port())}
    began_at_s = time.monotonic()
    with ExitStack() as running, ThreadPoolExecutor(2) as starting:

        def start(line: str) -> None:
            words = shlex.split(_elsewhere(line, ports))
            running.enter_context(serving(words[1:], int(words[words.index("--port") + 1]), tmp_path))

        list(starting.map(start, blocks("server")[0].splitlines()))
        for _, marked, body in BLOCK.findall(PAGE):
            _execute(marked, _elsewhere(body, ports), tmp_path)
    print(f"the whole walk: {time.monotonic() - began_at_s:.0f} s, servers included")
    _check(tmp_path)


def _elsewhere(text: str, ports: dict[str, str]) -> str:
    for written, free in ports.items():
        text = text.replace(written, free)
    return text


def _execute(marked: str, body: str, folder: Path) -> None:
    if marked.startswith("file="):
        (folder / marked.removeprefix("file=")).write_text(body if WHOLE else _smaller(marked, body))
    elif marked == "walk" and body.startswith("import "):
        _run([sys.executable, "-c", body], folder)
    elif marked == "walk":
        for line in body.splitlines():
            words = shlex.split(line)[1:]
            began_at_s = time.monotonic()
            more = [] if WHOLE else REDUCED.get(" ".join(words[:2]), [])
            _run([sys.executable, "-c", "from scripts.cli.main import main; main()", *words, *more], folder)
            print(f"{time.monotonic() - began_at_s:6.0f} s  {line}", flush=True)
            if words[:2] == ["policy", "suite"] and not WHOLE:
                loosened(folder / "certify" / "meta-contract.yaml")


def _smaller(marked: str, body: str) -> str:
    if marked != "file=recipe.yaml":
        return body
    for written, less in REDUCED_TEXT.items():
        assert written in body, written
        body = body.replace(written, less)
    return body


def _run(command: list[str], folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def _check(folder: Path) -> None:
    """Check the files that the walk leaves."""
    half = load_as(KernelProfile, folder / "profiles" / "half.yaml")
    assert half.spec.fingerprint.dtype == "float16"
    assert [one.name for one in half.spec.conditions] == ["healthy", "wrong-dtype"]
    assert half.spec.step_time is not None
    assert half.spec.step_time.half_widths is not None
    assert '"quality_estimator": "top_k"' in (folder / "out" / "e5.json").read_text()
    assert load_as(RoutePolicy, folder / "route.yaml").spec.mode == "enforce"
