"""A fleet of real servers under a drill: ``faults.drill.runner.DrillTarget`` over ``DrillFleet``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import httpx
import numpy as np
from numpy.typing import NDArray

from contracts.documents import ContractSpec
from contracts.errors import MeasurementError
from contracts.scoring.episode import EpisodeRecord
from contracts.telemetry import ReplicaState
from faults.client.dose import inject_with_kl
from faults.client.replica import Proof
from faults.client.wire import DrillError, DrillRefusedError, ReplicaGoneError, ReplicaSilentError
from faults.drill.outcome import Mended
from faults.drill.plan import TICK_S, DrillPlan, Strike
from faults.drill.runner import TargetGoneError
from faults.inside.document import FINAL_KINDS
from live.drill.arrivals import planned_load
from live.drill.episode import Damage, Frame, Second, episode_of, second_of
from live.drill.fleet import DrillFleet
from live.drill.healer import Healer
from live.drill.mending import Mending
from live.drill.promises import SLOWING_KINDS, broken_by_dose
from live.drill.proofs import Proofs, kl_limits, tv_bound
from live.errors import LiveError
from live.fleet.plan import FleetPlan
from live.load import LoadRecord, LoadTap, run_load
from live.ports import LiveReplica

#: A fault ends by itself if the runner does not renew it for this long, s.
LEASE_S = 20.0
_RESTART_S = 180.0
_RUNTIME_KINDS = ("crash", "raise", "hang")
#: Missing telemetry changes no answer; a surge strikes no replica.
_HARMLESS_KINDS = ("telemetry_loss", "trace_fields_missing", "load_surge")
_VISIBLE_KINDS = (*_RUNTIME_KINDS, *SLOWING_KINDS, "http_errors", "cut_json", "cut_stream")


class LiveTarget:
    """A fleet that accepts faults, under the drill's own load."""

    def __init__(self, fleet: DrillFleet, frame: Frame, healer: Healer) -> None:
        self._fleet, self._frame, self._healer = fleet, frame, healer
        self._proofs = Proofs(fleet=fleet)
        self._mending = Mending(fleet=fleet, plan=frame.plan)
        self._tap, self._thread = LoadTap(), threading.Thread()
        self._seconds: list[Second] = []
        self._began_at_s = 0.0
        self._extra: NDArray[np.float64] = np.zeros(0)
        self._on: dict[str, bool] = {}
        self._struck: dict[tuple[str, str], int | None] = {}  # (fault, replica) -> its process when struck
        self._anew: dict[tuple[str, str], str] = {}  # (fault, replica) -> note that it restarted by itself

    @property
    def requests(self) -> list[LoadRecord]:
        """All ended requests, sorted by start."""
        return sorted(self._fleet.named(list(self._tap.records)), key=lambda one: one.started_at_s)

    def begin(self) -> None:
        """Start the load and the healing controller."""
        front = self._fleet.front()
        self._proofs.remember(self._frame.plan.strikes, front)
        try:
            self._mending.remember(front)
        except (MeasurementError, httpx.HTTPError) as error:
            raise DrillError(f"a replica to be struck does not answer beforehand: {error}") from None
        load = self._frame.plan.load
        wanted, self._extra = planned_load(self._frame.plan, front, self._frame.seed)
        self._healer.start()
        self._fleet.warm_up(load.prompt_tokens, load.answer_tokens)
        self._began_at_s = time.monotonic()
        self._thread = threading.Thread(
            target=run_load, args=(wanted,), kwargs={"tap": self._tap}, daemon=True
        )
        self._thread.start()

    def advance(self) -> float:
        """Wait for the next second and observe the gateway; missed seconds get the present observation."""
        next_at_s = self._began_at_s + (len(self._seconds) + 1) * TICK_S
        time.sleep(max(0.0, next_at_s - time.monotonic()))
        last = self._seconds[-1] if self._seconds else None
        try:
            hosts, replicas = self._fleet.hosts(), self._fleet.replicas()
            seen = second_of(self._frame, hosts, replicas, last)
        except LiveError as error:
            raise TargetGoneError(f"the fleet is gone: {error}") from None
        now = replace(seen, for_capacity=self._healer.for_capacity(self._frame.layout.slices))
        if not now.ready.any():
            raise TargetGoneError("the fleet is gone: no replica serves")
        behind = int((time.monotonic() - self._began_at_s) / TICK_S) - len(self._seconds)
        self._seconds += [now] * max(1, behind)
        self._returned(replicas)
        return len(self._seconds) * TICK_S

    def record(self) -> EpisodeRecord:
        """The record up to now."""
        return episode_of(
            self._frame, self._seconds, self._fleet.named(list(self._tap.records)), self._began_at_s
        )

    def proof(self, strike: Strike) -> Proof:
        """Whether the strike takes effect now."""
        if not strike.replicas:
            sent = int((self._extra <= len(self._seconds) * TICK_S).sum())
            return Proof(happened=sent > 0, evidence=f"{sent} requests more than usual were due")
        try:
            found = self._proofs.of(strike)
        except ReplicaSilentError as error:
            found = Proof(happened=strike.fault.kind == "hang", evidence=str(error))
        if found.happened:
            self._measured(strike)
        return found

    def inject(self, strike: Strike) -> None:
        """Put the fault in force on every replica of the strike."""
        for name in strike.replicas:
            self._struck[strike.fault.name, name] = self._process(name)
            self._inject(strike, name)
            self._damage(strike, name)
        self._on[strike.fault.name] = True

    def keep(self) -> None:
        """Renew leases; switch intermittent faults on and off."""
        now_s = len(self._seconds) * TICK_S
        for strike in self._frame.plan.strikes:
            if strike.fault.name in self._on and strike.ends_at_s > now_s:
                self._switch(strike, now_s)
                self._renew(strike)

    def undo(self, strikes: tuple[Strike, ...]) -> tuple[bool, str]:
        """Undo the strikes, and wait for replicas that died of them."""
        told, clean = [], True
        for strike in strikes:
            self._on.pop(strike.fault.name, None)
            for name in strike.replicas:
                done, how = self._undo(strike, name)
                clean &= done
                told.append(f"{name} {how}{self._anew.get((strike.fault.name, name), '')}")
                if done:
                    self._close(strike, name)
        return clean, ", ".join(dict.fromkeys(told)) or "the load is as before"

    def mend(self) -> tuple[Mended, ...]:
        """Verify the struck replicas by requests like those of users."""
        struck = dict.fromkeys(self._frame.layout.replicas[one.replica] for one in self._frame.damages)
        return self._mending.turn(tuple(struck), len(self._seconds) * TICK_S)

    def end(self) -> None:
        """Stop the load, wait for requests under way, and stop the healer."""
        self._tap.stop.set()
        if self._thread.is_alive():
            self._thread.join(self._frame.plan.load.timeout_s + 5.0)
        self._healer.stop()
        self._mending.close()
        self._fleet.close()

    def _inject(self, strike: Strike, name: str) -> None:
        faults, live = self._fleet.faults(name), strike.fault.live
        if live is None or live.mean_kl_nats is None:
            self._proofs.injected[strike.fault.name, name] = faults.inject(strike.fault, LEASE_S)
            return
        meter = self._proofs.meter(name)
        found = inject_with_kl(faults, strike.fault, meter, LEASE_S)
        self._proofs.injected[strike.fault.name, name] = found[0]

    def _renew(self, strike: Strike) -> None:
        for name in strike.replicas if self._on[strike.fault.name] else ():
            with suppress(ReplicaGoneError, ReplicaSilentError):  # gone with its fault, or asked again soon
                if strike.fault.kind not in ("crash", "raise"):
                    self._renew_one(strike, name)

    def _renew_one(self, strike: Strike, name: str) -> None:
        """DrillError if the struck process no longer has the fault; a new process never had it."""
        try:
            self._fleet.faults(name).renew(LEASE_S)
        except DrillRefusedError as error:
            if self._process(name) == self._struck.get((strike.fault.name, name)):
                raise DrillError(f"{strike.fault.name} ended by itself on {name}: {error}") from None

    def _process(self, name: str) -> int | None:
        return next((one.pid for one in self._fleet.replicas() if one.name == name), None)

    def _switch(self, strike: Strike, now_s: float) -> None:
        """An intermittent fault is on during the first part of each period."""
        course, name = strike.fault.intermittent, strike.fault.name
        if course is None:
            return
        wanted = (now_s - strike.onset_s) % course.period_s < course.duty_ratio * course.period_s
        if wanted and not self._on[name]:
            self.inject(strike)
        elif not wanted and self._on[name]:
            self.undo((strike,))
            self._on[name] = False

    def _undo(self, strike: Strike, name: str) -> tuple[bool, str]:
        faults = self._fleet.faults(name)
        try:
            undone = faults.undo(strike.fault.name)
        except DrillError as error:
            if strike.fault.kind not in ("crash", "raise"):
                return False, f"not confirmed ({error})"
            undone = None
        if undone is not None and not undone.gone and undone.clean:
            return True, "is as it was"
        if undone is not None and not undone.gone:
            return False, "is not as it was; restart it"
        serves = self._fleet.await_serving(name, _RESTART_S)
        return serves, "was started anew" if serves else "did not come back"

    def _damage(self, strike: Strike, name: str) -> None:
        """Record the ground truth from now on."""
        kind, layout = strike.fault.kind, self._frame.layout
        only = strike.fault.trigger.slice if strike.fault.trigger else None
        struck = np.array([only is None or one == only for one in layout.slices])
        slowed = kind in SLOWING_KINDS
        promised = broken_by_dose(self._frame.contract, layout.slices, strike.fault)
        self._frame.damages.append(
            Damage(
                strike=strike,
                replica=layout.replicas.index(name),
                slices=promised if slowed else struck & (kind not in _HARMLESS_KINDS),
                silent=kind not in _VISIBLE_KINDS,
                by_clients=struck if slowed else None,
                tv_ratio=0.0,
                from_at_s=len(self._seconds) * TICK_S,
            )
        )

    def _measured(self, strike: Strike) -> None:
        """Correct the ground truth of a weight fault by its measured KL."""
        names = self._frame.layout.replicas
        for index, one in enumerate(self._frame.damages):
            kl = self._proofs.kl_nats.get((strike.fault.name, names[one.replica]))
            if one.strike is strike and kl is not None:
                limits = kl_limits(self._frame.contract, self._frame.layout.slices)
                self._frame.damages[index] = replace(one, slices=limits < kl, tv_ratio=tv_bound(kl))

    def _close(self, strike: Strike, name: str) -> None:
        place = self._frame.layout.replicas.index(name)
        self._over(lambda one: one.strike is strike and one.replica == place)

    def _returned(self, replicas: tuple[LiveReplica, ...]) -> None:
        """A replica whose process ended is healthy again once another process serves: the fault ended with
        it.
        """
        names = self._frame.layout.replicas
        serving = {one.name: one.pid for one in replicas if one.state == ReplicaState.READY}

        def anew(one: Damage) -> bool:
            name, fault = names[one.replica], one.strike.fault
            final = fault.kind in FINAL_KINDS
            was = self._proofs.pid(name) if final else self._struck.get((fault.name, name))
            return None not in (was, serving.get(name)) and serving[name] != was

        for one in self._over(anew):
            if one.strike.fault.kind not in FINAL_KINDS:
                message = f" (it was started anew by {one.to_at_s:g} s, and the fault ended with its process)"
                self._anew[one.strike.fault.name, names[one.replica]] = message

    def _over(self, which: Callable[[Damage], bool]) -> list[Damage]:
        """End now the damages that ``which`` selects and that are still open; returns them."""
        now_s, found = len(self._seconds) * TICK_S, []
        for index, one in enumerate(self._frame.damages):
            if np.isinf(one.to_at_s) and which(one):
                self._frame.damages[index] = replace(one, to_at_s=now_s)
                found.append(self._frame.damages[index])
        return found


def frame_of(plan: DrillPlan, fleet: FleetPlan, contract: ContractSpec, policy: str, seed: int) -> Frame:
    """The axes of a drill on ``fleet``; LiveError if its load names an unknown slice."""
    unknown = [part.slice for part in plan.slices if part.slice not in fleet.slices]
    if unknown:
        raise LiveError(
            f"{plan.name}: no such slice {', '.join(unknown)}; there are {', '.join(fleet.slices)}"
        )
    return Frame(
        plan=plan, layout=fleet.layout(), contract=contract, policy=policy, seed=seed, homes=fleet.homes
    )
