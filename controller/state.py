"""All that the controller remembers between two ticks, as named arrays, and its JSON form.

Restored at any tick, it takes the same later decisions: floats are written exactly (shortest form that
reads back equal; ``"nan"``, ``"inf"`` and ``"-inf"`` as strings, because JSON has no such numbers).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.errors import StateError
from controller.detectors import DetectorState, Sums
from controller.paired import initial_paired
from controller.ports import PolicyState
from controller.setup import ControllerSetup
from controller.supervise_meta import initial_memory

STATE_VERSION = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerState:
    """Memory of B fleets. Never changed in place: ``tick`` returns a new one.

    ticks: int64 [B], ticks so far. now_s: float64 [B], instant of the last tick (NaN: none yet).
    window_start_s: float64 [B], begin of the running window. window: float64 [B, R, S, C, 4], its sums.
    heard_s: float64 [B], when anything (scrape or probe) last arrived. scraped_s: float64 [B, R], newest
    scrape. progress_s: float64 [B, R], last sign of progress. probed_s: float64 [B, R, S], newest probe.
    offered_rps: float64 [B, S]; answered_rps, failed_rps: float64 [B, R], smoothed.
    quarantined: bool [B, R]; quarantine_reason: int64 [B, R]; quarantined_at_s: float64 [B, R];
    quarantines: int64 [B, R], times so far; readmitted_at_s: float64 [B, K].
    down_until_s: float64 [B, K], a kernel that failed as a whole counts as down until then.
    overloaded_s: float64 [B, K], when a kernel was last offered more than it carries.
    condemned: bool [B, K, S, C], alarm seen and not re-certified since; replica_condemned: bool
    [B, R, S, C], the same of a replica.
    ejected: bool [B, R], by the policy. table: float64 [B, S, K + 1], in force; row_moved_s: float64
    [B, S]; row_began_s: float64 [B, S], when the row last began to move because the policy wanted it.
    owed: bool [B, S], a move of the row that was not for capacity alone is not done yet. version: int64 [B].
    replica_detector, kernel_detector: memory of the detector over replicas and over kernels.
    policy: memory of the policy. supervisor, baseline: memory of the supervisor and of the policy that
    runs beside ours under a meta-contract; empty without one. paired: memory of the paired form, empty where
    nobody compares.
    """

    ticks: NDArray[np.int64]
    now_s: NDArray[np.float64]
    window_start_s: NDArray[np.float64]
    window: Sums
    heard_s: NDArray[np.float64]
    scraped_s: NDArray[np.float64]
    progress_s: NDArray[np.float64]
    probed_s: NDArray[np.float64]
    offered_rps: NDArray[np.float64]
    answered_rps: NDArray[np.float64]
    failed_rps: NDArray[np.float64]
    quarantined: NDArray[np.bool_]
    quarantine_reason: NDArray[np.int64]
    quarantined_at_s: NDArray[np.float64]
    quarantines: NDArray[np.int64]
    readmitted_at_s: NDArray[np.float64]
    down_until_s: NDArray[np.float64]
    overloaded_s: NDArray[np.float64]
    condemned: NDArray[np.bool_]
    replica_condemned: NDArray[np.bool_]
    ejected: NDArray[np.bool_]
    table: NDArray[np.float64]
    row_moved_s: NDArray[np.float64]
    row_began_s: NDArray[np.float64]
    owed: NDArray[np.bool_]
    version: NDArray[np.int64]
    replica_detector: DetectorState
    kernel_detector: DetectorState
    policy: PolicyState
    supervisor: PolicyState
    baseline: PolicyState
    paired: DetectorState


_NAMES = tuple(item.name for item in fields(ControllerState))
_VALUES = attrgetter(*_NAMES)


def altered(state: ControllerState, **changes: Any) -> ControllerState:
    """``state`` with these arrays in place of its own: ``dataclasses.replace`` in a third of its time."""
    return ControllerState(**{**dict(zip(_NAMES, _VALUES(state), strict=True)), **changes})


def initial_state(setup: ControllerSetup, batch: int) -> ControllerState:
    """State of ``batch`` fleets before their first tick: every slice at home, nothing known."""
    kernels, slices, replicas = setup.layout.shape
    clauses = len(setup.contract.clause_ids)
    table = np.zeros((batch, slices, kernels + 1))
    table[:, np.arange(slices), setup.fleet.home] = 1.0
    return ControllerState(
        ticks=np.zeros(batch, dtype=np.int64),
        now_s=np.full(batch, np.nan),
        window_start_s=np.full(batch, np.nan),
        window=np.zeros((batch, replicas, slices, clauses, 4)),
        heard_s=np.full(batch, np.nan),
        scraped_s=np.full((batch, replicas), np.nan),
        progress_s=np.full((batch, replicas), np.nan),
        probed_s=np.full((batch, replicas, slices), -np.inf),
        offered_rps=np.zeros((batch, slices)),
        answered_rps=np.zeros((batch, replicas)),
        failed_rps=np.zeros((batch, replicas)),
        quarantined=np.zeros((batch, replicas), dtype=np.bool_),
        quarantine_reason=np.zeros((batch, replicas), dtype=np.int64),
        quarantined_at_s=np.full((batch, replicas), -np.inf),
        quarantines=np.zeros((batch, replicas), dtype=np.int64),
        readmitted_at_s=np.full((batch, kernels), -np.inf),
        down_until_s=np.full((batch, kernels), -np.inf),
        overloaded_s=np.full((batch, kernels), -np.inf),
        condemned=np.zeros((batch, kernels, slices, clauses), dtype=np.bool_),
        replica_condemned=np.zeros((batch, replicas, slices, clauses), dtype=np.bool_),
        ejected=np.zeros((batch, replicas), dtype=np.bool_),
        table=table,
        row_moved_s=np.full((batch, slices), -np.inf),
        row_began_s=np.full((batch, slices), -np.inf),
        owed=np.zeros((batch, slices), dtype=np.bool_),
        version=np.zeros(batch, dtype=np.int64),
        replica_detector=setup.detector.initial(batch, replicas, setup.contract),
        kernel_detector=setup.detector.initial(batch, kernels, setup.contract),
        policy=setup.policy.initial(batch),
        supervisor=initial_memory(setup, batch),
        baseline={} if setup.baseline is None or setup.meta is None else setup.baseline.initial(batch),
        paired=initial_paired(batch, setup.paired),
    )


def state_to_json(state: ControllerState, setup: ControllerSetup) -> str:
    """Versioned JSON of ``state``; equal states give equal text."""
    document = {
        "version": STATE_VERSION,
        "fits": _fits(setup),
        "state": {item.name: _pack(getattr(state, item.name)) for item in fields(state)},
    }
    return json.dumps(document, sort_keys=True, allow_nan=False)


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
        return int(stored["ticks"]["shape"][0])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise StateError("state.ticks: expected an array with one entry per fleet") from error


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
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


def _pack(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _pack(array) for name, array in sorted(value.items())}
    array = np.asarray(value)
    flat = [_number(item) for item in array.ravel().tolist()]
    return {"dtype": array.dtype.str, "shape": list(array.shape), "data": flat}


def _number(item: Any) -> Any:
    if isinstance(item, float) and not np.isfinite(item):
        return str(item)
    return item


def _unpack(name: str, packed: Any, template: Any) -> Any:
    if isinstance(template, dict):
        if not isinstance(packed, dict) or sorted(packed) != sorted(template):
            raise StateError(f"state.{name}: expected the arrays {sorted(template)}; start anew")
        return {key: _unpack(f"{name}.{key}", packed[key], template[key]) for key in sorted(template)}
    expected = np.asarray(template)
    try:
        array = np.array([_parsed(item) for item in packed["data"]], dtype=expected.dtype)
        array = array.reshape(packed["shape"])
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"state.{name}: expected an array of {expected.dtype}; start anew") from error
    if array.shape != expected.shape:
        raise StateError(f"state.{name}: expected shape {expected.shape}, got {array.shape}; start anew")
    return array


def _parsed(item: Any) -> Any:
    return float(item) if isinstance(item, str) else item
