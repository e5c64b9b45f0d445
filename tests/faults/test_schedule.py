"""A share of a target: rounded down, at least one, spread evenly, the same everywhere."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from faults.schedule import struck_share


@given(
    st.lists(st.integers(), unique=True, min_size=1, max_size=60),
    st.integers(1, 100),
)
def test_a_share_is_kept_and_ordered(selected: list[int], percent: int) -> None:
    """The floor of the share, at least one, each of them once and in the order they were listed."""
    struck = struck_share(selected, percent / 100)
    assert len(struck) == max(1, int(Fraction(percent, 100) * len(selected)))
    assert [one for one in selected if one in struck] == list(struck)


@given(st.integers(1, 12), st.integers(2, 6), st.integers(1, 100))
def test_kernels_are_struck_alike(replicas: int, kernels: int, percent: int) -> None:
    """Kernels with equally many replicas lose equally many, give or take one."""
    listed = [(kernel, replica) for kernel in range(kernels) for replica in range(replicas)]
    struck = struck_share(listed, percent / 100)
    counts = [sum(one == kernel for one, _ in struck) for kernel in range(kernels)]
    assert max(counts) - min(counts) <= 1


def test_without_a_share_all_are_struck_and_nothing_stays_nothing() -> None:
    """No ratio means the whole selection; an empty selection stays empty."""
    assert struck_share([3, 1], None) == (3, 1)
    assert struck_share([], 0.5) == ()
    assert struck_share([3, 1], 1.0) == (3, 1)
