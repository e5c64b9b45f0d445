"""Drills that are invalid, and a drill with every field."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from contracts.documents.drill import GUARD_METRICS

Object = dict[str, Any]
Change = Callable[[Object], object]


def _set(*path: str | int, to: object) -> Change:
    """Put ``to`` at ``path`` of a spec."""

    def change(spec: Object) -> None:
        place: Any = spec
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = copy.deepcopy(to)

    return change


def _twice(rows: list[Object]) -> None:
    """The first of ``rows`` once more."""
    rows.append(copy.deepcopy(rows[0]))


def grows(spec: Object) -> None:
    """A dose that grows, as no fault of a pod does."""
    spec["faults"][0].update(shape="ramp", ramp={"rise_s": 10.0})


#: Defect -> the change of a valid drill's spec that causes it, and its message.
BROKEN_DRILLS: dict[str, tuple[Change, str]] = {
    "an unknown metric": (
        _set("abort_when", 0, "metric", to="quality"),
        "a drill watches failure_rate",
    ),
    "an unknown metric while all is well": (
        _set("steady_state", 0, "metric", to="kl_mean"),
        "a drill watches failure_rate",
    ),
    "a threshold in percent": (_set("steady_state", 0, "threshold", to=5.0), "a share of one"),
    "a threshold that never ends it": (
        _set("abort_when", 0, "threshold", to=1.5),
        "a share of one",
    ),
    "a guard twice": (lambda spec: _twice(spec["abort_when"]), "each name once"),
    "a state twice": (lambda spec: _twice(spec["steady_state"]), "each name once"),
    "a replica and a share": (
        _set("faults", 0, "target", "replica_ratio", to=0.5),
        "either one replica or a share",
    ),
    "a shape without its block": (
        _set("faults", 0, "shape", to="intermittent"),
        "block of its",
    ),
    "a block of another shape": (_set("faults", 0, "ramp", to={"rise_s": 1.0}), "block of its"),
    "nothing measured": (
        lambda spec: spec["faults"][0].pop("condition"),
        "name the measured condition",
    ),
    "a trigger of nothing": (_set("faults", 0, "trigger", to={}), "at least one condition"),
    "an empty residue": (
        _set("faults", 0, "trigger", to={"prompt_residue": {"block_tokens": 16, "lowest": 3, "highest": 2}}),
        "lowest <= highest < block_tokens",
    ),
    "a trace of nothing": (
        _set("load", to={"rate_rps": 1.0, "arrivals": "trace"}),
        "trace_uri goes with",
    ),
    "a load of one and a half": (
        _set(
            "load",
            to={"rate_rps": 1.0, "slice_mix": [{"slice": "a", "share": 1.0}, {"slice": "b", "share": 0.5}]},
        ),
        "add up to 1",
    ),
    "a slice of the load twice": (
        _set("load", to={"rate_rps": 1.0, "slice_mix": [{"slice": "a", "share": 0.5}] * 2}),
        "each slice once",
    ),
}

#: A drill with every field, at its limits.
SOUND_DRILL: Object = {
    "load": {
        "rate_rps": 1.0,
        "arrivals": "trace",
        "trace_uri": "trace.csv",
        "slice_mix": [{"slice": name, "share": 0.1} for name in "abcdefghij"],
    },
    "abort_when": [
        {"name": name, "metric": name, "sense": "at_least", "threshold": 1.0} for name in GUARD_METRICS
    ],
    "faults": [
        {
            "name": "half",
            "kind": "noise",
            "live": {"mean_kl_nats": 0.1},
            "onset_s": 0.0,
            "shape": "intermittent",
            "intermittent": {"period_s": 10.0, "duty_ratio": 0.5},
            "target": {"kernel": "bf16", "replica_ratio": 0.5},
            "trigger": {"prompt_residue": {"block_tokens": 16, "lowest": 0, "highest": 15}},
        },
        {"name": "hit", "kind": "slow", "onset_s": 1.0, "trigger": {"prefix_hit": True}},
    ],
}
