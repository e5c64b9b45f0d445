"""CPU time of other processes as a clock."""

from __future__ import annotations

import subprocess
import sys

import pytest

from contracts.errors import MeasurementError
from live.fleet.processes import process_clock

#: Burns CPU as long as a line says, in a child process, and reports how much.
BURNER = """
import subprocess, sys
inner = '''
import sys, time
print(flush=True)
for line in sys.stdin:
    began = time.process_time()
    while time.process_time() - began < float(line):
        pass
    print(time.process_time() - began, flush=True)
'''
sys.exit(subprocess.run([sys.executable, "-c", inner]).returncode)
"""


def test_what_a_process_and_its_children_burn_is_counted_and_nothing_else() -> None:
    """Between two readings lies the CPU time of the child, however long it waited for a processor."""
    child = subprocess.Popen(
        [sys.executable, "-c", BURNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdout.readline()
        clock = process_clock(child.pid)
        before = clock()
        child.stdin.write("0.3\n")
        child.stdin.flush()
        burnt = float(child.stdout.readline())
        assert clock() - before == pytest.approx(burnt, rel=0.2, abs=0.02)
    finally:
        child.stdin.close()
        child.stdout.close()
        child.wait(timeout=120)


def test_a_process_that_is_not_there_is_refused() -> None:
    """There is no process 0, so it cannot be a clock."""
    with pytest.raises(MeasurementError, match="none of this machine"):
        process_clock(0)
