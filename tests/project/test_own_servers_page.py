"""The walkthrough for own servers, block by block, against two real servers of the shipped model."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from contracts.documents import KernelProfile
from contracts.loading.loader import load_as
from live.measure.checkpoint import SHIPPED_MODEL
from tests.support.paths import ROOT
from tests.support.vllm_servers import free_port, serving

PAGE = (ROOT / "docs" / "own-servers.md").read_text()
BLOCK = re.compile(r"^```(\w+) (walk|server|file=\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: What the tests leave out of the measuring: a busy machine's clocks are no reason to fail.
REDUCED = {"profile": ["--repeats", "1", "--step-half-width", "10"]}


def blocks(kind: str) -> list[str]:
    """Bodies of the page's blocks of a kind."""
    return [body for _, marked, body in BLOCK.findall(PAGE) if marked == kind]


def test_every_block_of_the_page_is_executed() -> None:
    """No block stands on the page that the walk leaves out."""
    assert len(re.findall(r"^```\w+", PAGE, re.MULTILINE)) == len(BLOCK.findall(PAGE))


@pytest.mark.needs("vllm", "torch", "transformers")
@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_the_walk_from_two_servers_to_a_comparison(tmp_path: Path) -> None:
    """Each block in its order, in an empty folder; every program and command exits with 0."""
    (tmp_path / "refmodel").symlink_to(SHIPPED_MODEL)
    ports = {"8001": str(free_port()), "8002": str(free_port())}
    with ExitStack() as running:
        for line in blocks("server")[0].splitlines():
            words = shlex.split(_elsewhere(line, ports))
            running.enter_context(serving(words[1:], int(words[words.index("--port") + 1]), tmp_path))
        for _, marked, body in BLOCK.findall(PAGE):
            _execute(marked, _elsewhere(body, ports), tmp_path)
    _check(tmp_path)


def _elsewhere(text: str, ports: dict[str, str]) -> str:
    for written, free in ports.items():
        text = text.replace(written, free)
    return text


def _execute(marked: str, body: str, folder: Path) -> None:
    if marked.startswith("file="):
        (folder / marked.removeprefix("file=")).write_text(body)
    elif marked == "walk" and body.startswith("import "):
        _run([sys.executable, "-c", body], folder)
    elif marked == "walk":
        for line in body.splitlines():
            words = shlex.split(line)[1:]
            more = [] if words[1] == "table" else REDUCED.get(words[0], [])
            _run([sys.executable, "-c", "from scripts.cli.main import main; main()", *words, *more], folder)


def _run(command: list[str], folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def _check(folder: Path) -> None:
    """What the walk leaves behind says what it is."""
    half, full = (load_as(KernelProfile, folder / "profiles" / f"{name}.yaml") for name in ("half", "full"))
    assert (half.spec.fingerprint.dtype, full.spec.fingerprint.dtype) == ("float16", "float32")
    assert [one.name for one in full.spec.conditions] == ["healthy", "halved"]
    assert half.spec.step_time is not None
    assert half.spec.step_time.half_widths is not None
    assert '"quality_estimator": "top_k"' in (folder / "out" / "e5.json").read_text()
