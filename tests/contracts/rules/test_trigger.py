"""Rules of a fault's trigger."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contracts.documents.scenario import ScheduledFault
from contracts.rules.scenario import fault_breaches
from tests.faults.inside.test_document import scheduled


def breaches(fault: ScheduledFault) -> list[str]:
    """Dotted paths of what is broken."""
    return [".".join(map(str, breach.path)) for breach in fault_breaches(fault, (), None, None)]


def test_a_trigger_without_condition_is_refused() -> None:
    """An empty block is a slip, not a fault that always acts."""
    assert breaches(scheduled("slow", trigger={})) == ["trigger"]
    assert breaches(scheduled("slow", trigger={"prefix_hit": False})) == ["trigger"]
    assert breaches(scheduled("slow", trigger={"prefix_hit": True})) == []


@given(st.integers(1, 300), st.integers(0, 300), st.integers(0, 300))
def test_residues_lie_below_the_block(block: int, lowest: int, highest: int) -> None:
    """An interval of remainders is accepted exactly if it is none that no length can have."""
    residue = {"block_tokens": block, "lowest": lowest, "highest": highest}
    found = breaches(scheduled("slow", trigger={"prompt_residue": residue}))
    assert (found == []) == (lowest <= highest < block)


def test_a_measured_fault_needs_a_condition_or_a_dose_that_is_found() -> None:
    """What the simulator cannot look up must at least be found on the live server."""
    assert breaches(scheduled("noise")) == ["condition"]
    assert breaches(scheduled("noise", live={"mean_kl_nats": 0.05})) == []
