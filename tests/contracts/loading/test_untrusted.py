"""JSON that could fill the memory is not parsed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.loading import untrusted
from contracts.loading.untrusted import MOST_VALUES, json_of, refuse_too_many_values

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
)


def counted(value: object) -> int:
    """Values in ``value``, including itself and everything inside."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(counted(one) for one in inner)


@given(VALUES)
def test_parsing_equals_plain_json(value: object) -> None:
    """As text and as bytes."""
    text = json.dumps(value)
    assert json_of(text) == json_of(text.encode()) == value


@given(VALUES, st.integers(1, 40))
def test_too_many_values_are_refused_however_they_nest(value: object, most: int) -> None:
    """Every value but the first follows a counted character, so none is missed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(untrusted, "MOST_VALUES", most)
        text = json.dumps(value)
        try:
            refuse_too_many_values(text)
        except ValueError:
            return
        assert counted(value) <= most + 1 or len(text) < most


@pytest.mark.parametrize("crowd", [b"[],", b"{},", b"0,"])
def test_too_many_values_are_refused_unparsed(crowd: bytes) -> None:
    """Lists, objects and numbers alike; the error is that of invalid JSON."""
    with pytest.raises(ValueError, match="values are read"):
        json_of(b"[" + crowd * (MOST_VALUES + 1) + b"0]")
    with pytest.raises(ValueError, match="a key twice"):
        json_of('{"a": 1, "a": 2}', unique=refuse_twice)


def refuse_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object whose keys are unique."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)
