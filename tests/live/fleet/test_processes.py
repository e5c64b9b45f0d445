"""CPU time of other processes as a clock."""

from __future__ import annotations

import subprocess
import sys

import pytest

from contracts.errors import MeasurementError
from live.fleet.processes import process_clock

#: Burns CPU for as long as it is told on a line, in a child of its own, and says how much that was.
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
    """Between two looks lies what the child burnt, however long it waited for a processor."""
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
        child.wait(timeout=60)


def test_a_process_that_is_not_there_is_refused() -> None:
    """No process has the number 0, and none can be timed by it."""
    with pytest.raises(MeasurementError, match="none of this machine"):
        process_clock(0)
