"""What shows that wrong weights are in force, by what a replica's ranks said of their canaries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from faults.client.replica import Injected, ReplicaFaults

CHANGED = {"layers": 4, "canary_before": "a", "canary_after": "b"}
UNCHANGED = {"layers": 4, "canary_before": "a", "canary_after": "a"}
#: No bit of this rank's shard was to flip.
SPARED = {"layers": 0, "canary_before": "a", "canary_after": "a"}


class Replica(ReplicaFaults):
    """A replica that is never called."""

    def status(self) -> dict[str, Any]:
        """Its engine answers."""
        return {"engine": {"faults": []}, "http": []}


@pytest.mark.parametrize(
    ("ranks", "happened"),
    [
        ([CHANGED], True),
        ([UNCHANGED], False),
        ([CHANGED, CHANGED], True),
        ([CHANGED, UNCHANGED], False),
        ([UNCHANGED, CHANGED], False),
        ([SPARED, CHANGED], True),
        ([SPARED, SPARED], False),
        ([{"already": True}], False),
    ],
)
def test_weights_are_wrong_where_every_rank_that_was_to_change_did(
    tmp_path: Path, ranks: list[dict[str, Any]], happened: bool
) -> None:
    """A fault that one rank of two has is not the fault that was asked for; a rank may be spared."""
    injected = Injected(fault={"name": "f", "kind": "noise"}, evidence={"ranks": ranks}, record=tmp_path)
    proof = Replica("http://127.0.0.1:9", tmp_path / "token", tmp_path).verify(injected)
    assert proof.happened is happened
