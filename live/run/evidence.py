"""Evidence of an incident: the answer of a replica that was just condemned or left, next to the right one.

The worst of its last probes is repeated at once, outside the control loop. Both log-probability traces, the
probes that led to the decision and the facts about the engine are written to one file. The prompts are golden
prompts, never users'.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from contracts.errors import MeasurementError, SelvageError
from contracts.loading.files import json_text, write_pinned
from contracts.units import MS_PER_S
from controller.options import ControllerSetup
from controller.state import QuarantineReason
from live.control.loop import Turn
from live.measure.backend import TopScores
from live.measure.backends.openai_backend import TOP_K, top_scores
from live.measure.endpoint import Endpoint
from live.measure.prompts import Prompt

FORMAT = 1
#: Subfolder for these files, in the folder of the decision log.
EVIDENCE = "evidence"
#: Beginning of the reason if traffic left a kernel and no replica was condemned.
LEFT = "traffic left"
#: Columns with events that no healthy server shows, however often its answers are right.
EVENTS = ("answer_broken", "nonce_crossed", "grammar_invalid")
_GENERATED = "its failing probe was a generation, which is not asked again"
_LAST = 32
#: Least share of a slice that counts as moved; least time between two files of one replica, s.
_MOVED, _AGAIN_S = 0.01, 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedReplica:
    """A replica's address and the known facts about its engine: flags, version, fingerprint."""

    endpoint: Endpoint
    engine: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceAnswer:
    """A golden prompt and the reference's answer."""

    prompt: Prompt
    reference: TopScores


class IncidentEvidence:
    """``TurnWatcher`` that writes a file when a replica is newly condemned, or traffic leaves its kernel."""

    def __init__(
        self,
        folder: Path,
        setup: ControllerSetup,
        right: Mapping[int, ReferenceAnswer],
        find: Callable[[str], DescribedReplica],
    ) -> None:
        """``right``: by prompt number; ``find``: looks up a replica by name when it is condemned."""
        self._folder, self._layout, self._right, self._find = folder, setup.layout, right, find
        self._probes: list[deque[dict[str, Any]]] = [deque(maxlen=_LAST) for _ in setup.layout.replicas]
        self._left_at_s = np.full(len(setup.layout.replicas), -np.inf)
        self._held_at_s = self._left_at_s.copy()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evidence")
        self._writing: list[Future[None]] = []

    def close(self) -> None:
        """Wait for files that are being written."""
        self._thread.shutdown()

    def turn(self, turn: Turn) -> None:
        """Remember the probes of ``turn``, and repeat the worst probe of replicas that it condemned.

        An error that prevented a file from being written is raised at the next turn.
        """
        if turn.decision is None or turn.telemetry is None:
            return
        self._remember(turn)
        for kept_at_s, found in ((self._left_at_s, self._left(turn)), (self._held_at_s, _condemned(turn))):
            for r, reason in found.items():
                if turn.at_s - kept_at_s[r] >= _AGAIN_S:
                    kept_at_s[r] = turn.at_s
                    told = {"replica": self._layout.replicas[r], "reason": reason, "at_s": turn.at_s}
                    self._writing.append(self._thread.submit(self._write, told, list(self._probes[r])))
        self._heed()

    def _heed(self) -> None:
        """Raise the first error of a file that could not be written."""
        asked = [(one, one.done()) for one in self._writing]
        self._writing = [one for one, done in asked if not done]
        for one, done in asked:
            if done:
                one.result()

    def _left(self, turn: Turn) -> dict[int, str]:
        """For every kernel that traffic leaves, not for capacity alone: the replica with the worst probe."""
        assert turn.decision is not None
        if not turn.decision.moved[0] or turn.decision.capacity_move[0]:
            return {}
        lost = (turn.before.table[0] - turn.decision.plan.table[0])[:, :-1].max(axis=0) > _MOVED
        found = {}
        for kernel in np.flatnonzero(lost).tolist():
            mine = np.flatnonzero(self._layout.replica_kernel == kernel).tolist()
            seen = {r: incident_severity(probe) for r in mine if (probe := worst(list(self._probes[r])))}
            if seen:
                found[max(seen, key=lambda r: seen[r])] = f"{LEFT} {self._layout.kernels[kernel]}"
        return found

    def _remember(self, turn: Turn) -> None:
        assert turn.telemetry is not None
        probes = turn.telemetry.probes
        for row in range(probes.replica.shape[1]):
            values = zip(self._layout.probe_metrics, probes.values[0, row].tolist(), strict=True)
            self._probes[int(probes.replica[0, row])].append(
                {
                    "sent_at_s": float(probes.sampled_at_ms[0, row]) / MS_PER_S,
                    "slice": self._layout.slices[int(probes.slice[0, row])],
                    "prompt": int(probes.prompt[0, row]),
                    "answered": bool(probes.valid[0, row]),
                    "values": dict(values),
                }
            )

    def _write(self, told: dict[str, Any], probes: list[dict[str, Any]]) -> None:
        content = {"format": FORMAT, **told, "probes": probes, "failing": worst(probes)}
        try:
            replica = self._find(str(told["replica"]))
            content |= {"engine": dict(replica.engine), **self._traces(replica, content["failing"])}
        except SelvageError as error:
            content["note"] = str(error)
        self._folder.mkdir(parents=True, exist_ok=True)
        what = str(told["reason"]).partition(" ")[0]
        name = f"{int(told['at_s'])}-{told['replica']}-{what}.json"
        write_pinned(self._folder / name, f"{json_text(content, indent=1)}\n".encode())

    def _traces(self, replica: DescribedReplica, failing: dict[str, Any] | None) -> dict[str, Any]:
        if failing is None or failing["prompt"] not in self._right:
            return {"note": "no probe of it was answered" if failing is None else _GENERATED}
        right = self._right[failing["prompt"]]
        traces: dict[str, Any] = {
            "token_ids": list(right.prompt.token_ids),
            "reference": trace(right.reference),
        }
        try:
            return traces | {"observed": trace(read_logprobs(replica.endpoint, right.prompt))}
        except SelvageError as error:
            return traces | {"observed": None, "note": f"asked again: {error}"}


def _condemned(turn: Turn) -> dict[int, str]:
    """Replicas that this turn quarantined, with the reason."""
    assert turn.decision is not None
    fresh = turn.decision.quarantined[0] & ~turn.before.quarantined[0]
    reasons = turn.decision.quarantine_reason[0]
    return {r: QuarantineReason(int(reasons[r])).name.lower() for r in np.flatnonzero(fresh).tolist()}


def worst(probes: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The worst answered probe by ``incident_severity``; None if no probe measured anything."""
    told = [one for one in probes if one["answered"] and _measured(one)]
    return max(told, key=incident_severity, default=None)


def incident_severity(probe: Mapping[str, Any]) -> tuple[float, float, float]:
    """How bad ``probe`` is: by ``EVENTS``, then by the first of the contract's probe metrics, then by any
    other.

    Kinds of probes measure different metrics; a value that was not measured is NaN and is ignored.
    """
    found, first = _measured(probe), next(iter(probe["values"]), "")
    events = max((value for name, value in found.items() if name in EVENTS), default=0.0)
    return events, found.get(first, -math.inf), max(found.values(), default=-math.inf)


def _measured(probe: Mapping[str, Any]) -> dict[str, float]:
    """The metrics that the probe measured, with their values."""
    return {name: float(value) for name, value in probe["values"].items() if not math.isnan(value)}


def read_logprobs(endpoint: Endpoint, prompt: Prompt) -> TopScores:
    """Present log-probabilities of ``prompt``; MeasurementError or DocumentError if there are none."""
    body = {
        "model": endpoint.model,
        "prompt": list(prompt.token_ids),
        "max_tokens": 1,
        "temperature": 0.0,
        "prompt_logprobs": TOP_K,
    }
    with endpoint.client() as client:
        answer = endpoint.answer(client, "POST", "/v1/completions", body)
    try:
        rows = [
            {int(token): float(entry["logprob"]) for token, entry in (row or {}).items()}
            for row in answer["choices"][0]["prompt_logprobs"][1:]
        ]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise MeasurementError("the answer holds no log-probabilities of the prompt") from None
    return top_scores(rows, TOP_K, prompt.token_ids[1:])


def trace(scores: TopScores) -> list[dict[str, float]]:
    """For each position: token -> log-probability, most probable first."""
    return [
        {str(token): round(float(value), 6) for token, value in zip(tokens, values, strict=True)}
        for tokens, values in zip(scores.token_ids.tolist(), scores.log_probs.tolist(), strict=True)
    ]
