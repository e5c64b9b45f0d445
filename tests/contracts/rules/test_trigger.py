"""Rules of a fault's trigger."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contracts.documents.scenario import ScheduledFault
from contracts.rules.scenario import fault_breaches
from tests.faults.inside.test_document import scheduled


def breaches(fault: ScheduledFault) -> list[str]:
    """Dotted paths of the broken rules."""
    return [".".join(map(str, breach.path)) for breach in fault_breaches(fault, (), None, None)]


def test_a_trigger_without_condition_is_refused() -> None:
    """An empty block is a mistake, not a fault that always acts."""
    assert breaches(scheduled("slow", trigger={})) == ["trigger"]
    assert breaches(scheduled("slow", trigger={"prefix_hit": False})) == ["trigger"]
    assert breaches(scheduled("slow", trigger={"prefix_hit": True})) == []


@given(st.integers(1, 300), st.integers(0, 300), st.integers(0, 300))
def test_residues_are_below_the_block(block: int, lowest: int, highest: int) -> None:
    """An interval of remainders is accepted exactly if a length can have one of them."""
    residue = {"block_tokens": block, "lowest": lowest, "highest": highest}
    found = breaches(scheduled("slow", trigger={"prompt_residue": residue}))
    assert (found == []) == (lowest <= highest < block)


def test_a_measured_fault_needs_a_condition_or_a_calibrated_dose() -> None:
    """A dose that the simulator cannot look up must be calibrated on the live server."""
    assert breaches(scheduled("noise")) == ["condition"]
    assert breaches(scheduled("noise", live={"mean_kl_nats": 0.05})) == []
