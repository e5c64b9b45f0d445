"""The controller's state as versioned JSON: a restarted controller goes on as if nothing had happened.

Floats are written exactly: the shortest form that reads back equal, and ``"nan"``, ``"inf"`` and ``"-inf"``
as strings, because JSON has no such numbers.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.errors import StateError
from contracts.loading.untrusted import MALFORMED, json_of
from controller.initial import initial_state
from controller.options import ControllerSetup
from controller.state import ControllerState

#: Changes whenever an array gets another name or meaning.
STATE_VERSION = 24


def state_to_json(state: ControllerState, setup: ControllerSetup) -> str:
    """Versioned JSON of ``state``; equal states give equal text."""
    arrays = {item.name: getattr(state, item.name) for item in fields(state)}
    fits = json.dumps(_fits(setup), sort_keys=True, allow_nan=False)
    return f'{{"fits": {fits}, "state": {_written(arrays)}, "version": {STATE_VERSION}}}'


def state_from_json(text: str, setup: ControllerSetup) -> ControllerState:
    """State written by ``state_to_json``.

    Raises StateError where version, layout, contract or policy differ from ``setup``, or where the text
    is not such a state.
    """
    document = _document(text)
    _check_fit(document.get("fits"), _fits(setup))
    stored = document.get("state")
    names = [item.name for item in fields(ControllerState)]
    if not isinstance(stored, dict) or sorted(stored) != sorted(names):
        raise StateError(
            f"state: expected the arrays {sorted(names)}; discard the stored state and start anew"
        )
    template = initial_state(setup, _batch(stored))
    values = {name: _unpack(name, stored[name], getattr(template, name)) for name in names}
    return ControllerState(**values)


def _batch(stored: dict[str, Any]) -> int:
    try:
        fleets = int(stored["ticks"]["shape"][0])
        if len(stored["ticks"]["data"]) == fleets:
            return fleets
        error: Exception = ValueError(f"shape of {fleets} fleets")
    except MALFORMED as found:
        error = found
    raise StateError("state.ticks: expected an array with one entry per fleet") from error


def _document(text: str) -> dict[str, Any]:
    try:
        document = json_of(text)
    except (ValueError, RecursionError) as error:
        raise StateError(f"state: expected JSON, got {error}; discard the stored state") from error
    if not isinstance(document, dict) or document.get("version") != STATE_VERSION:
        found = document.get("version") if isinstance(document, dict) else type(document).__name__
        raise StateError(
            f"state version: expected {STATE_VERSION}, got {found}; discard the stored state and start anew"
        )
    return document


def _fits(setup: ControllerSetup) -> dict[str, Any]:
    layout = setup.layout
    return {
        "kernels": list(layout.kernels),
        "slices": list(layout.slices),
        "replicas": list(layout.replicas),
        "replica_kernel": layout.replica_kernel.tolist(),
        "contract_sha256": setup.contract.sha256,
        "clauses": list(setup.contract.clause_ids),
        "policy": setup.policy.policy_id,
        "meta_sha256": "" if setup.meta is None else setup.meta.sha256,
        "baseline": "" if setup.baseline is None else setup.baseline.policy_id,
    }


def _check_fit(found: Any, expected: dict[str, Any]) -> None:
    if not isinstance(found, dict):
        raise StateError("state.fits: expected an object that names layout, contract and policy")
    for name, value in expected.items():
        if found.get(name) != value:
            raise StateError(
                f"state.fits.{name}: expected {value}, got {found.get(name)}; "
                "the state belongs to another fleet, contract or policy: start anew"
            )


def _written(value: Any) -> str:
    """JSON of an array or of named ones, as ``json.dumps`` writes it with sorted keys."""
    if isinstance(value, dict):
        named = (f"{json.dumps(name)}: {_written(array)}" for name, array in sorted(value.items()))
        return f"{{{', '.join(named)}}}"
    array = np.asarray(value)
    about = json.dumps({"dtype": array.dtype.str, "shape": list(array.shape)})
    return f'{{"data": {_numbers(array.ravel())}, {about[1:]}'


def _numbers(flat: NDArray[Any]) -> str:
    """JSON of ``flat`` [N]. Numbers that repeat, as most of a quiet fleet's do, are made into text once."""
    bits = flat.view(f"i{flat.itemsize}") if flat.dtype.kind == "f" else flat
    begins = np.flatnonzero(np.concatenate(([True], bits[1:] != bits[:-1]))[: len(flat)])
    values = flat[begins].tolist()
    if flat.dtype.kind == "f":
        for at in np.flatnonzero(~np.isfinite(flat[begins])).tolist():
            values[at] = str(values[at])
    texts = json.dumps(values, allow_nan=False)[1:-1].split(", ")
    counts = np.diff(begins, append=len(flat)).tolist()
    return f"[{', '.join(', '.join([text] * n) for text, n in zip(texts, counts, strict=False))}]"


def _unpack(name: str, packed: Any, template: Any) -> Any:
    if isinstance(template, dict):
        if not isinstance(packed, dict) or sorted(packed) != sorted(template):
            raise StateError(f"state.{name}: expected the arrays {sorted(template)}; start anew")
        return {key: _unpack(f"{name}.{key}", packed[key], template[key]) for key in sorted(template)}
    expected = np.asarray(template)
    try:
        array = np.array([_parsed(item) for item in packed["data"]], dtype=expected.dtype)
        array = array.reshape(packed["shape"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise StateError(f"state.{name}: expected an array of {expected.dtype}; start anew") from error
    if array.shape != expected.shape:
        raise StateError(f"state.{name}: expected shape {expected.shape}, got {array.shape}; start anew")
    return array


def _parsed(item: Any) -> Any:
    return float(item) if isinstance(item, str) else item
