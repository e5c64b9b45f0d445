"""Proof that wrong weights are in force, from the canaries of a replica's ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from faults.client.replica import Injected, ReplicaFaults

CHANGED = {"layers": 4, "canary_before": "a", "canary_after": "b"}
UNCHANGED = {"layers": 4, "canary_before": "a", "canary_after": "a"}
#: No bit of this rank's shard was chosen to flip.
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
    """A fault on one rank of two is not the requested fault; a rank without chosen bits is fine."""
    injected = Injected(fault={"name": "f", "kind": "noise"}, evidence={"ranks": ranks}, record=tmp_path)
    proof = Replica("http://127.0.0.1:9", tmp_path / "token", tmp_path).verify(injected)
    assert proof.happened is happened
