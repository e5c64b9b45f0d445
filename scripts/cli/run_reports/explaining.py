"""Content of ``selvage explain``: decision records of one run, the baseline's alternative, attributions.

A run is repeated from scenario, policy and seed, which is exact, or read from a decision log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.scoring.episode import EpisodeRecord
from contracts.scoring.incident_measures import measure_incident
from controller.decision import Decision
from controller.explain.tick import explain, record_json
from controller.options import ControllerSetup
from controller.ports import Policy, PolicyState
from controller.state import ControllerState
from live.control.chain import MissingRecords
from live.control.journal import CONTROL, segments
from policies.learned.attribution import integrated_gradients, largest, occlusion
from policies.learned.runner import LearnedPolicy
from scripts.cli.run_reports.decision_log import Tick, log_refusal, read_log_contents
from scripts.cli.run_reports.logged_alarms import SLACK_S, QuietAlarm, in_force, moves_something, quiet_alarms
from scripts.e5.route import ObservingDriver
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario

#: Name of the mode in which decisions are taken and not carried out.
OBSERVED = "observe (nothing below was executed)"
METHODS = {"occlusion": occlusion, "gradients": integrated_gradients}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to explain. at_s: the tick in force then (None: the whole incident). baseline: the policy for
    the alternative. reference_s: the tick that a learned policy's features are compared with; features:
    number shown, by ``method``.
    """

    at_s: float | None = None
    method: str = "occlusion"
    features: int = 8
    reference_s: float = 60.0


@dataclass(slots=True, kw_only=True)
class Watcher:
    """Observes every tick of one fleet and keeps the requested records."""

    setup: ControllerSetup
    wanted: Wanted
    baseline: Policy | None
    executed: bool = True
    memory: PolicyState = field(default_factory=dict)
    reference: NDArray[np.float64] | None = None  # [N], inputs that attributions are against
    demoted: bool = False
    ticks: list[Tick] = field(default_factory=list)

    def take(self, before: ControllerState, after: ControllerState, decision: Decision) -> None:
        """Process one tick: run the baseline, keep the record if it is requested."""
        asked = self._ask(decision)
        now_s = float(after.now_s[0])
        inputs = self._inputs(before, decision)
        if inputs is not None and (self.reference is None or now_s <= self.wanted.reference_s + SLACK_S):
            self.reference = inputs
        if self._keeps(before, after, decision):
            record = json.loads(record_json(explain(before, after, decision, self.setup, 0, asked)))
            record["attribution"] = self._attribution(before, after, inputs)
            record["executed"] = self.executed
            self.ticks.append(record)
        self.demoted = bool(decision.demoted[0])

    def _ask(self, decision: Decision) -> NDArray[np.float64] | None:
        if self.baseline is None:
            return None
        if not self.memory:
            self.memory = self.baseline.initial(1)
        proposal, self.memory = self.baseline.propose(decision.observation, self.memory)
        return proposal.table

    def _keeps(self, before: ControllerState, after: ControllerState, decision: Decision) -> bool:
        """Whether it is the requested tick, or moved weight, quarantined, released, demoted or promoted."""
        if self.wanted.at_s is not None:
            behind_s = self.wanted.at_s - float(after.now_s[0])
            return -SLACK_S <= behind_s < self.setup.fleet.tick_s - SLACK_S
        moved = bool((after.table != before.table).any() or (after.quarantined != before.quarantined).any())
        return moved or bool(decision.demoted[0]) != self.demoted

    def _inputs(self, before: ControllerState, decision: Decision) -> NDArray[np.float64] | None:
        policy = self.setup.policy
        if not isinstance(policy, LearnedPolicy):
            return None
        inputs, _ = policy.chooser.look(decision.observation, before.policy)
        return np.asarray(inputs[0], dtype=np.float64)

    def _attribution(
        self, before: ControllerState, after: ControllerState, inputs: NDArray[np.float64] | None
    ) -> list[dict[str, Any]]:
        """For each slice whose choice changed (all of them at one tick): features that moved its margin."""
        policy = self.setup.policy
        if inputs is None or self.reference is None or not isinstance(policy, LearnedPolicy):
            return []
        old, new = np.asarray(before.policy["choice"])[0], np.asarray(after.policy["choice"])[0]
        shown = range(len(new)) if self.wanted.at_s is not None else np.flatnonzero(old != new)

        def scores(rows: NDArray[np.float64]) -> NDArray[np.float64]:
            """Scores of inputs [N, size], with a recurrent network's memory before this tick."""
            known = {name: np.repeat(before.policy[name], len(rows), axis=0) for name in policy.runner.memory}
            return policy.runner(rows.astype(np.float32), known).astype(np.float64)

        return [self._of_slice(policy, scores, int(s), int(old[s]), int(new[s]), inputs) for s in shown]

    def _of_slice(
        self,
        policy: LearnedPolicy,
        score: Callable[[NDArray[np.float64]], NDArray[np.float64]],
        s: int,
        old: int,
        new: int,
        inputs: NDArray[np.float64],
    ) -> dict[str, Any]:
        assert self.reference is not None
        scores = score(inputs[None])[0, s]
        chosen = self._column(policy, new)
        other = self._column(policy, old) if old != new else _runner_up(scores, chosen)

        def margin(rows: NDArray[np.float64]) -> NDArray[np.float64]:
            out = score(rows)[:, s]
            return np.asarray(out[:, chosen] - out[:, other])

        effects = METHODS[self.wanted.method](margin, inputs, self.reference)
        names = named(policy.chooser.layout.names(), self.setup)
        return {
            "slice": self.setup.layout.slices[s],
            "chosen": self._name(policy, chosen),
            "over": self._name(policy, other),
            "margin": float(scores[chosen] - scores[other]),
            "method": self.wanted.method,
            "features": [
                asdict(effect)
                for effect in largest(names, inputs, self.reference, effects, self.wanted.features)
            ],
        }

    def _column(self, policy: LearnedPolicy, choice: int) -> int:
        """Column of the scores: shed is the last one, behind the padding."""
        kernels = len(self.setup.layout.kernels)
        return policy.runner.choices - 1 if choice >= kernels else choice

    def _name(self, policy: LearnedPolicy, column: int) -> str:
        if column == policy.runner.choices - 1:
            return "shed"
        kernels = self.setup.layout.kernels
        return kernels[column] if column < len(kernels) else f"padding{column}"


def _runner_up(scores: NDArray[np.float64], chosen: int) -> int:
    order = np.argsort(-scores, kind="stable")
    return int(order[0] if order[0] != chosen else order[1])


def named(names: Iterable[str], setup: ControllerSetup) -> list[str]:
    """Names of features with the fleet's own names of kernels and slices."""
    of_kernel = {f"kernel{i}": name for i, name in enumerate(setup.layout.kernels)}
    of_slice = {f"slice{i}": name for i, name in enumerate(setup.layout.slices)}
    known = of_kernel | of_slice
    return [".".join(known.get(part, part) for part in name.split(".")) for name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """header: origin. incident: its measures, None without one. ticks: decision records."""

    header: dict[str, Any]
    incident: dict[str, Any] | None
    ticks: list[Tick]
    passive: list[Tick] = field(default_factory=list)
    """Alarms of a live log that no probe raised, with their beginning and end."""
    scrapes: list[Tick] = field(default_factory=list)
    """Anomalies of scrapes in a live log, with their beginning and end."""
    quiet: tuple[QuietAlarm, ...] = ()
    """Alarms of clauses in a log for which nothing was moved."""
    missing: tuple[MissingRecords, ...] = ()
    """Requested facts that a live log does not hold."""

    def plain(self) -> dict[str, Any]:
        """Its JSON form."""
        told: dict[str, Any] = {"passive": self.passive} if self.passive else {}
        told |= {"scrapes": self.scrapes} if self.scrapes else {}
        told |= {"alarms": [asdict(one) for one in self.quiet]} if self.quiet else {}
        told |= {"missing": [asdict(one) for one in self.missing]} if self.missing else {}
        return {**self.header, "incident": self.incident, "ticks": self.ticks, **told}


def from_scenario(
    world: CompiledScenario,
    setup: ControllerSetup,
    baseline: Policy | None,
    seed: int,
    wanted: Wanted,
    *,
    observes: bool = False,
) -> Explained:
    """Run the episode again and explain it; ``baseline`` is evaluated at every tick.

    observes: nothing is executed; the incident then also holds its measures at the times of the decisions
    (``decided``) and those of the same episode with the decisions executed (``enforced``).
    """
    watcher = Watcher(setup=setup, wanted=wanted, baseline=baseline, executed=not observes)
    kind = ObservingDriver if observes else ControllerDriver
    driver = kind(setup, log=watcher.take)
    record = run_episodes(world, driver, [seed], batch=1)[0]
    incident = _incident(record)
    if isinstance(driver, ObservingDriver) and incident is not None:
        incident["decided"] = _incident(driver.decided(record, 0))
        incident["enforced"] = _incident(run_episodes(world, ControllerDriver(setup), [seed], batch=1)[0])
    header = {
        "scenario": world.name,
        "policy": setup.policy.policy_id,
        "baseline": "" if baseline is None else baseline.policy_id,
        "seed": seed,
    } | ({"mode": OBSERVED} if observes else {})
    return Explained(header=header, incident=incident, ticks=watcher.ticks)


def _incident(record: EpisodeRecord) -> dict[str, Any] | None:
    found = measure_incident(record)
    if found is None:
        return None
    return {name: value for name, value in asdict(found).items() if value == value}  # NaN is left out


#: Where ``selvage simulate --out`` writes the decisions of its episodes.
SIMULATED = "decisions.jsonl"


def log_files(place: Path) -> list[Path]:
    """The files of a decision log: ``place``, or those in its folder of a run, a simulation or a fleet."""
    if not place.is_dir():
        return [place]
    simulated = place / SIMULATED
    found = [simulated] if simulated.is_file() else segments(place) or segments(place / CONTROL)
    if not found:
        raise log_refusal(place, 0, f"a folder with decisions-000001.jsonl or {SIMULATED}", "neither")
    return found


def from_log(file: Path, seed: int, at_s: float | None) -> Explained:
    """The explanation of a decision log: the tick at ``at_s``, or every tick with a move."""
    told = read_log_contents(log_files(file))
    lines, missing = told.ticks, told.missing
    own = [line for line in lines if line.get("seed", seed) == seed]
    if not own:
        found = sorted({str(line.get("seed")) for line in lines})
        raise log_refusal(file, 0, f"ticks of seed {seed}", f"seeds {', '.join(found) or 'none'}")
    if at_s is None:
        ticks = [line for line in own if moves_something(line)]
    else:
        missing = tuple(one for one in missing if one.covers(at_s))
        ticks = [] if missing else [line for line in own if line["now_s"] <= at_s + SLACK_S][-1:]
    header = {"log": str(file), "policy": own[0]["policy_id"], "seed": seed}
    header |= {} if own[0].get("executed", True) else {"mode": OBSERVED}
    shown, scrapes = list(told.passive), list(told.scrapes)
    if at_s is not None:
        shown, scrapes = in_force(shown, "signal", at_s), in_force(scrapes, "what", at_s)
    quiet = quiet_alarms(own) if at_s is None else ()
    return Explained(
        header=header,
        incident=None,
        ticks=ticks,
        passive=shown,
        scrapes=scrapes,
        quiet=quiet,
        missing=missing,
    )
