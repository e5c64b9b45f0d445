"""A RoutePolicy that an experiment changes and restores afterwards, however the experiment ends.

The original spec is kept in an annotation that is written in the same call as the change, so it is never
lost. Any process that finds the annotation can restore it.
"""

from __future__ import annotations

import json
from typing import Any

from contracts.loading.files import json_text
from contracts.loading.untrusted import MALFORMED
from k8s.operator.objects import Manifest
from scripts.e5_cluster.ports import ExperimentCluster, ExperimentError

#: Annotation of a RoutePolicy that an experiment uses: its spec from before, as JSON.
UNDO = "selvage.dev/e5-undo"
#: Attempts of a write: the operator may write the status between our read and write, which is a conflict.
_TRIES = 20


class BorrowedPolicy:
    """The RoutePolicy ``name``, while one experiment uses it."""

    def __init__(self, cluster: ExperimentCluster, name: str) -> None:
        self._cluster, self.name = cluster, name
        self._generation: int | None = None
        """Keep the generation of the spec that this process put in force; None: none was put."""

    def put(self, spec: dict[str, Any]) -> None:
        """Put ``spec`` in force. ExperimentError if another writer changed it meanwhile; ClusterError."""
        for _ in range(_TRIES):
            found = self.found()
            self._refuse_foreign(found)
            annotations = dict(found["metadata"].get("annotations") or {})
            annotations.setdefault(UNDO, json_text(found["spec"]))
            changed = {**found, "spec": spec, "metadata": {**found["metadata"], "annotations": annotations}}
            before, self._generation = self._generation, None  # a lost answer proves nothing
            made = self._cluster.put_policy(changed)
            if made is not None:
                self._generation = int(made["metadata"]["generation"])
                return
            self._generation = before
        raise ExperimentError(f"RoutePolicy {self.name}: keeps changing; find the client that writes it")

    def give_back(self) -> bool:
        """Restore the original spec; returns whether there was one to restore.

        ExperimentError if another writer changed it meanwhile: it and the annotation stay unchanged.
        """
        for _ in range(_TRIES):
            found = self.found()
            annotations = dict(found["metadata"].get("annotations") or {})
            if UNDO not in annotations:
                return False
            self._refuse_foreign(found)
            spec = _read(annotations.pop(UNDO), self.name)
            changed = {**found, "spec": spec, "metadata": {**found["metadata"], "annotations": annotations}}
            if self._cluster.put_policy(changed) is not None:
                self._generation = None
                return True
        raise ExperimentError(f"RoutePolicy {self.name}: keeps changing; find the client that writes it")

    def require_ours(self) -> None:
        """ExperimentError if another writer changed it since it was put in force."""
        self._refuse_foreign(self.found())

    def found(self) -> Manifest:
        """The policy as it is now; ExperimentError if it is gone."""
        found = self._cluster.policy(self.name)
        if found is None:
            raise ExperimentError(f"there is no RoutePolicy {self.name} any more; apply it anew")
        return found

    def _refuse_foreign(self, found: Manifest) -> None:
        """ExperimentError if the spec is not the one that this process put in force."""
        if self._generation is None or int(found["metadata"]["generation"]) == self._generation:
            return
        raise ExperimentError(
            f"RoutePolicy {self.name}: another client changed its spec during the run, so it is left alone; "
            f"what it was before the run stands in its annotation {UNDO}: apply what you want, take the "
            "annotation away, and run again"
        )


def _read(text: str, name: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except MALFORMED as error:
        found = error
    if not isinstance(found, dict) or "policy" not in found:
        raise ExperimentError(
            f"RoutePolicy {name}: expected its former spec in the annotation {UNDO}, got {found!s:.80}; "
            "apply the policy from your own files, and take the annotation away"
        )
    return found
