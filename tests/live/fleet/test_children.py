"""No child outlives the supervisor: real processes, really killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from live.fleet.children import Children
from live.fleet.processes import (
    await_group_end,
    group_members,
    group_memory_bytes,
    kill_group,
    process_id,
    runs,
)
from live.fleet.watchdog import watch
from tests.support.waiting import until

_SLEEPER = [sys.executable, "-c", "import time; time.sleep(300)"]
#: A shell that has a child of its own, as an API server has an engine.
_FAMILY = ["sh", "-c", "sleep 300 & sleep 300"]
_PARENT = """
import sys, time
from pathlib import Path
from live.fleet.children import Children
children = Children()
family = ["sh", "-c", "sleep 300 & sleep 300"]
print(children.start(family, Path(sys.argv[1]), {"PATH": "/usr/bin:/bin"}), flush=True)
time.sleep(300)
"""


@pytest.fixture
def children() -> Iterator[Children]:
    """Children of this process, all ended afterwards."""
    made = Children()
    yield made
    made.close()


def start(children: Children, tmp_path: Path, command: list[str]) -> int:
    """A child with an empty environment but the path."""
    return children.start(command, tmp_path / "logs" / "child.log", {"PATH": os.environ["PATH"]})


def test_a_killed_parent_leaves_no_process(tmp_path: Path) -> None:
    """SIGKILL of the process that started a family ends the whole family."""
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, str(tmp_path / "log")], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout as told:
        group = int(told.readline())
    until(lambda: len(group_members(group)) == 3)
    parent.kill()
    parent.wait()
    assert await_group_end(group, 15.0)


def test_a_killed_guard_is_replaced_and_knows_every_child(tmp_path: Path, children: Children) -> None:
    """A guard that dies is started again with the present groups."""
    group = start(children, tmp_path, _SLEEPER)
    first = guard_of(children)
    os.kill(first, signal.SIGKILL)
    until(lambda: bool(children.ended() or True) and guard_of(children) != first)
    assert group_members(group) == [group]
    assert runs_now(guard_of(children))


def guard_of(children: Children) -> int:
    """Process id of the guard."""
    guard = vars(children)["_guard"]
    return int(guard.pid)


def runs_now(pid: int) -> bool:
    """Whether ``pid`` is alive."""
    found = process_id(pid)
    return found is not None and runs(found)


def test_ends_are_told_once_with_their_code(tmp_path: Path, children: Children) -> None:
    """An exit code, or the signal as a negative number."""
    good = start(children, tmp_path, ["sh", "-c", "exit 3"])
    killed = start(children, tmp_path, _SLEEPER)
    children.kill(killed)
    found: dict[int, int] = {}
    until(lambda: found.update(children.ended()) or len(found) == 2)
    assert found == {good: 3, killed: -signal.SIGKILL}
    assert children.ended() == {}


def test_a_group_is_killed_whole(tmp_path: Path, children: Children) -> None:
    """Processes that a child started are in its group and end with it; an empty group needs no signal."""
    group = start(children, tmp_path, _FAMILY)
    until(lambda: len(group_members(group)) == 3)
    assert group_memory_bytes(group) > 0
    children.kill(group)
    until(lambda: bool(children.ended()))
    assert await_group_end(group, 10.0)
    assert not kill_group(2**22 + 1)


def test_the_guard_keeps_the_groups_that_were_not_forgotten() -> None:
    """Lines name groups to watch and to forget; other lines are ignored."""
    assert watch(["+12\n", "+13\n", "-12\n", "+x\n", "\n", "+1\n", "-99\n"]) == {13}


def test_a_dead_process_is_not_alive_as_a_zombie(tmp_path: Path) -> None:
    """A process that ended but was not waited for does not run."""
    child = subprocess.Popen(["true"])
    found = process_id(child.pid)
    assert found is not None
    until(lambda: not runs(found))
    child.wait()
    assert process_id(child.pid) is None
