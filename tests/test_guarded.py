"""Processes of tests do not outlive their pytest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from live.fleet.processes import await_group_end, group_members
from tests.support.guarded import guarded
from tests.support.paths import ROOT

PATIENCE_S = 300.0
#: Starts a process from a thread that ends, as fixtures do, and waits to be killed.
PROGRAM = """
import os, sys, threading
from pathlib import Path
from tests.support.guarded import guarded

def begin():
    global held
    held = guarded([sys.executable, "-c", "import time; time.sleep(600)"], Path(sys.argv[1]), os.environ)
    print(held.__enter__().pid, flush=True)

thread = threading.Thread(target=begin)
thread.start()
thread.join()
sys.stdin.read()
"""


def test_what_a_killed_process_started_dies_with_it(tmp_path: Path) -> None:
    """After SIGKILL no clean-up runs, and the group ends all the same; the end of a thread ends nothing."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "log")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as owner:
        assert owner.stdout is not None
        group = int(owner.stdout.readline())
        assert not await_group_end(group, 1.0)
        owner.send_signal(signal.SIGKILL)
        assert await_group_end(group, PATIENCE_S)


def test_the_group_is_gone_after_the_block(tmp_path: Path) -> None:
    """Processes that do not end on request are killed, with their children."""
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True)"
    command = [sys.executable, "-c", f"import os; os.fork(); {deaf}; time.sleep(600)"]
    log = tmp_path / "log"
    with guarded(command, log, os.environ, ask_first_s=0.5) as child:
        while log.read_text().count("deaf") < 2:
            assert child.poll() is None
        assert len(group_members(child.pid)) == 2
    assert await_group_end(child.pid, PATIENCE_S)
