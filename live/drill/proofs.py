"""Proves that a fault takes effect on a live replica, by the same question before and after the injection.

A weight fault changes the canary and the log-probabilities of fixed prompts; a crash changes the process; a
hung engine answers no call; every other fault counts the requests that it struck.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from contracts.documents import ContractSpec
from contracts.rng import stream
from contracts.telemetry import ReplicaState
from faults.client.dose import KlMeter
from faults.client.replica import Injected, Proof
from faults.client.wire import ReplicaGoneError
from faults.drill.plan import Strike
from faults.inside.document import FINAL_KINDS, WEIGHT_KINDS
from live.drill.fleet import DrillFleet, Front
from live.errors import LiveError
from live.load import drawn_tokens
from live.ports import LiveReplica

#: Without a fault, a replica's mean KL to its own clean answers is far below this, nats.
LEAST_KL_NATS = 1e-4
_PROMPTS, _PROMPT_TOKENS = 4, 48


@dataclass(slots=True)
class Proofs:
    """Proofs for the replicas of one fleet. ``injected`` is filled by the injecting target."""

    fleet: DrillFleet
    injected: dict[tuple[str, str], Injected] = field(default_factory=dict)
    kl_nats: dict[tuple[str, str], float] = field(default_factory=dict)
    _meters: dict[str, KlMeter] = field(default_factory=dict)
    _pids: dict[str, int | None] = field(default_factory=dict)

    def remember(self, strikes: tuple[Strike, ...], front: Front) -> None:
        """Record the healthy state of every replica that will be struck."""
        rng = stream(0, "drill_proof_prompts")
        prompts = drawn_tokens(rng, (_PROMPTS, _PROMPT_TOKENS)).tolist()
        for strike in strikes:
            for name in strike.replicas:
                server = self._replica(name)
                self._pids[name] = server.pid
                if _of_weights(strike) and name not in self._meters:
                    self._meters[name] = KlMeter(server.url, front.model, prompts, api_key=front.api_key)

    def meter(self, name: str) -> KlMeter:
        """The meter of a replica's mean KL to its own clean answers."""
        return self._meters[name]

    def pid(self, name: str) -> int | None:
        """Process number of a replica before it was struck."""
        return self._pids[name]

    def of(self, strike: Strike) -> Proof:
        """Whether the strike takes effect on all of its replicas."""
        found = [self._one(strike, name) for name in strike.replicas]
        message = "; ".join(
            f"{name}: {one.evidence}" for name, one in zip(strike.replicas, found, strict=True)
        )
        return Proof(happened=all(one.happened for one in found), evidence=message)

    def _one(self, strike: Strike, name: str) -> Proof:
        if strike.fault.kind in FINAL_KINDS:
            return self._process(name)
        try:
            if _of_weights(strike):
                return self._weights(strike, name)
            return self._struck(strike, name)
        except ReplicaGoneError as error:
            return Proof(happened=False, evidence=str(error))

    def _replica(self, name: str) -> LiveReplica:
        found = next((one for one in self.fleet.replicas() if one.name == name), None)
        if found is None:
            raise LiveError(f"{name}: no such replica")
        return found

    def _process(self, name: str) -> Proof:
        server = self._replica(name)
        if server.pid == self._pids[name] and server.state == ReplicaState.READY:
            return Proof(happened=False, evidence=f"process {server.pid} serves")
        return Proof(happened=True, evidence=f"process {self._pids[name]} ended")

    def _weights(self, strike: Strike, name: str) -> Proof:
        kl = self._meters[name]()
        self.kl_nats[strike.fault.name, name] = kl
        injected = self.injected.get((strike.fault.name, name))
        if injected is None:
            return Proof(happened=kl > LEAST_KL_NATS, evidence=f"mean KL {kl:.3g} nats")
        canary = self.fleet.faults(name).verify(injected)
        message = f"mean KL {kl:.3g} nats (top 20), {canary.evidence}"
        return Proof(happened=canary.happened and kl > LEAST_KL_NATS, evidence=message)

    def _struck(self, strike: Strike, name: str) -> Proof:
        replica = self.fleet.faults(name)
        injected = self.injected.get((strike.fault.name, name))
        if injected is not None:
            return replica.verify(injected)
        status = replica.status()
        if status["engine"] is None:
            return Proof(happened=True, evidence="the engine answers no call")
        known = strike.fault.name in status["injected"]
        return Proof(happened=known, evidence="in force already" if known else "not in force")


def tv_bound(kl_nats: float) -> float:
    """Pinsker's bound on the total variation of a token at this mean KL."""
    return min(1.0, math.sqrt(max(0.0, kl_nats) / 2.0))


def kl_limits(contract: ContractSpec, slices: tuple[str, ...]) -> NDArray[np.float64]:
    """The smallest mean KL that breaks the contract on each slice, nats; inf if no clause limits it."""
    clauses = [clause for clause in contract.clauses if clause.metric == "kl_mean"]
    return np.array(
        [
            min((c.threshold for c in clauses if c.slices is None or name in c.slices), default=np.inf)
            for name in slices
        ]
    )


def _of_weights(strike: Strike) -> bool:
    kinds = (*WEIGHT_KINDS, "correlated")
    return strike.fault.kind in kinds and strike.fault.trigger is None
