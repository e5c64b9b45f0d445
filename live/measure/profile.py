"""Measures one kernel against the reference: healthy, under every fault dose, and healthy again.

The last healthy repeat comes after every injection was undone, so equal repeats also prove the undo.
An injection counts only if the functional canary detected it (or, for slowed steps, did not).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from contracts.documents.step_time import StepPoint
from contracts.errors import MeasurementError
from contracts.metrics import COLUMN_NAMES, draw_tokens, prompt_columns
from contracts.rng import stream
from live.measure.backend import EngineFacts, Scores, ServingBackend, Session, StepPlan, TopScores, top_values
from live.measure.backends.openai_backend import OpenaiBackend
from live.measure.kernels import FaultDose, Kernel, RestartFault
from live.measure.measurement import KernelMeasurement, MeasuredCondition, MeasurePlan
from live.measure.prompts import Prompt
from live.measure.reference import AnyReference
from live.measure.steps.model import step_time_ratio
from live.measure.steps.times import measure_served, measure_steps, slowdown

#: Larger values are stored as this; a flipped exponent can make E exp|log w| overflow.
LARGEST_VALUE = 1e12
_SLOW_PLAN = StepPlan(batches=(1, 8), contexts=(128,), decode_steps=12, rounds=5, clock="wall", least=True)
#: A server with unchanged answers counts as slower from this factor on.
_SLOWER = 1.2
_NO_CHANGE = FaultDose(
    name="no-change",
    kind="noise",
    method="selvage_add_noise",
    arguments=(0.0, ".*"),
    setting=0.0,
    unit="standard deviations of the weight",
)
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """One pass over the prompts. values: float64 [prompts, columns]; digests: hash per prompt."""

    values: NDArray[np.float64]  # [prompts, columns]
    digests: tuple[str, ...]
    finite: bool


class KernelMeter:
    """Measures kernels of one back end on one prompt list."""

    def __init__(
        self,
        backend: ServingBackend,
        prompts: Sequence[Prompt],
        reference: AnyReference,
        progress: Progress,
        on_prompt: Callable[[], None] = lambda: None,
    ) -> None:
        """``progress`` is called with the name of each finished part, ``on_prompt`` after every scored
        prompt.
        """
        self._on_prompt = on_prompt
        self._backend = backend
        self._prompts = prompts
        self._reference = reference
        self._progress = progress

    def measure(self, kernel: Kernel, plan: MeasurePlan) -> KernelMeasurement:
        """The whole measurement of ``kernel``. Raises MeasurementError if one of its checks fails."""
        notes: list[str] = []
        with self._backend.start(kernel) as session:
            canary = session.canary()
            first = self._pass(session, plan, None)
            if not first.finite:
                raise MeasurementError(f"{kernel.name}: healthy log-probabilities are not finite")
            self._progress("healthy")
            step_time, said = measure_steps(session, plan.steps)
            serving, unsaid = measure_served(session, plan.steps, step_time)
            notes += [*said, *unsaid]
            self._progress("step times" if plan.steps else "healthy")
            notes += self._negative_control(session, canary, plan)
            faulty = self._faults(session, canary, plan, first, notes)
            healthy = self._later_passes(session, plan, first, plan.repeats)
            facts, peak = session.facts, session.peak_bytes()
            served = self._servers(session, plan, first, notes)
        notes.append(_repeat_note(healthy, [f for f in faulty if f.fault != "slow"]))
        restarted = self._restarts(kernel, plan, first, canary, facts, notes)
        conditions = (_healthy_condition(healthy), *faulty, *restarted, *served)
        return KernelMeasurement(
            kernel=kernel,
            facts=facts,
            conditions=conditions,
            step_time=step_time,
            serving=serving,
            peak_bytes=peak,
            notes=tuple(notes),
        )

    def _negative_control(self, session: Session, canary: str, plan: MeasurePlan) -> list[str]:
        if not any(dose.numeric for dose in plan.doses):
            return []
        session.inject(_NO_CHANGE)
        unchanged = session.canary() == canary
        session.undo()
        if not unchanged:
            raise MeasurementError("noise of size 0 changed the canary: this kernel cannot be injected into")
        return ["Negative control: rebuilding every kernel with unchanged weights left the canary as it was."]

    def _faults(
        self, session: Session, canary: str, plan: MeasurePlan, first: _Pass, notes: list[str]
    ) -> list[MeasuredCondition]:
        done: list[MeasuredCondition] = []
        for dose in plan.doses:
            baseline = [] if dose.numeric else session.time_steps(_SLOW_PLAN)
            session.inject(dose)
            try:
                condition = self._fault(session, canary, plan, dose, baseline, first)
            finally:
                session.undo()
            if session.canary() != canary:
                raise MeasurementError(f"{dose.name}: the canary did not return to its healthy value")
            self._progress(dose.name)
            if condition is None:
                notes.append(f"{dose.name}: some log-probabilities were not finite; left out.")
            elif not condition.verified:
                notes.append(f"{dose.name}: the canary did not confirm the injection; left out.")
            else:
                done.append(condition)
        return done

    def _fault(
        self,
        session: Session,
        canary: str,
        plan: MeasurePlan,
        dose: FaultDose,
        baseline: list[StepPoint],
        first: _Pass,
    ) -> MeasuredCondition | None:
        changed = session.canary() != canary
        factor = 1.0
        if not dose.numeric:
            factor = step_time_ratio(session.time_steps(_SLOW_PLAN), baseline)
        run = self._pass(session, plan, first)
        if not run.finite:
            return None
        verified = changed if dose.numeric else (not changed and run.digests == first.digests and factor > 1)
        passes = self._later_passes(session, plan, run, plan.repeats)
        return MeasuredCondition(
            name=dose.name,
            fault=dose.kind,
            setting=dose.setting,
            unit=dose.unit,
            verified=verified,
            restored=True,
            step_time_factor=factor,
            values=_stacked(passes),
        )

    def _restarts(
        self,
        kernel: Kernel,
        plan: MeasurePlan,
        first: _Pass,
        canary: str,
        facts: EngineFacts,
        notes: list[str],
    ) -> list[MeasuredCondition]:
        done: list[MeasuredCondition] = []
        for fault in plan.restarts:
            with self._backend.start(kernel, environment=fault.environment, options=fault.options) as session:
                changed = session.canary() != canary
                run = self._pass(session, plan, first)
                passes = self._later_passes(session, plan, run, plan.repeats)
                same = session.facts.fingerprint == facts.fingerprint
            self._progress(fault.name)
            if not run.finite or run.digests == first.digests:
                notes.append(f"{fault.name}: outputs did not change on this machine; left out.")
                continue
            said = "equal to" if same else "different from"
            seen = "saw it" if changed else "did not see it, the log-probabilities did"
            notes.append(f"{fault.name}: fingerprint {said} the healthy one; the linear canary {seen}.")
            done.append(_restart_condition(fault, passes))
        if done:
            with self._backend.start(kernel) as session:
                if self._pass(session, plan, first).digests != first.digests:
                    raise MeasurementError(f"{kernel.name}: a plain restart does not repeat the first start")
            self._progress("healthy after restart")
        return done

    def _servers(
        self, session: Session, plan: MeasurePlan, first: _Pass, notes: list[str]
    ) -> list[MeasuredCondition]:
        """Conditions measured on other servers; one without any effect is left out, with a note."""
        done: list[MeasuredCondition] = []
        for server in plan.servers:
            backend = OpenaiBackend(server.endpoint)
            with backend.start(backend.kernels[0]) as other:
                run = self._pass(other, plan, first)
                factor = slowdown(other, session) if plan.steps else 1.0
                passes = self._later_passes(other, plan, run, plan.repeats)
            self._progress(server.name)
            same = run.digests == first.digests
            if not run.finite or (same and factor < _SLOWER):
                notes.append(f"{server.name}: this server neither answers otherwise nor is slower; left out.")
                continue
            done.append(
                _server_condition(server.name, "slow" if same else "kernel_regression", factor, passes)
            )
        return done

    def _later_passes(self, session: Session, plan: MeasurePlan, first: _Pass, count: int) -> list[_Pass]:
        return [first, *(self._pass(session, plan, first) for _ in range(count - 1))]

    def _pass(self, session: Session, plan: MeasurePlan, known: _Pass | None) -> _Pass:
        """Score and reduce all prompts; those with the same score bytes as in ``known`` reuse its values."""
        values = np.full((len(self._prompts), len(COLUMN_NAMES)), np.nan)
        digests: list[str] = []
        finite = True
        for index, scores in enumerate(session.score(self._prompts)):
            digests.append(_digest(scores))
            self._on_prompt()
            if known is not None and known.digests[index] == digests[-1]:
                values[index] = known.values[index]
            elif np.isfinite(scores.log_probs).all():
                values[index] = self._columns(index, scores, plan.seed)
            else:
                finite = False
        return _Pass(values=values, digests=tuple(digests), finite=finite)

    def _columns(self, index: int, scores: Scores, seed: int) -> NDArray[np.float64]:
        reference = self._reference.of(index)
        if isinstance(reference, TopScores) or isinstance(scores, TopScores):
            values = top_values(reference, scores)
        else:
            rng = stream(seed, "sampled", self._prompts[index].id)
            tokens = draw_tokens(scores.log_probs, rng)
            with np.errstate(over="ignore"):
                values = prompt_columns(reference, scores.log_probs, tokens).values
        return np.asarray(np.minimum(values, LARGEST_VALUE))


def _digest(scores: Scores) -> str:
    digest = hashlib.sha256(scores.log_probs.tobytes())
    if isinstance(scores, TopScores):
        digest.update(scores.token_ids.tobytes())
    return digest.hexdigest()


def _stacked(passes: Iterable[_Pass]) -> NDArray[np.float64]:
    return np.stack([run.values for run in passes], axis=1)


def _healthy_condition(passes: list[_Pass]) -> MeasuredCondition:
    return MeasuredCondition(
        name="healthy",
        fault="none",
        setting=0.0,
        unit="",
        verified=True,
        restored=True,
        step_time_factor=1.0,
        values=_stacked(passes),
    )


def _restart_condition(fault: RestartFault, passes: list[_Pass]) -> MeasuredCondition:
    healthy = _healthy_condition(passes)
    return replace(healthy, name=fault.name, fault=fault.kind, setting=1.0, unit=fault.description)


def _server_condition(name: str, fault: str, factor: float, passes: list[_Pass]) -> MeasuredCondition:
    unit = "times the step time" if fault == "slow" else "a server of the same model, configured otherwise"
    setting = factor if fault == "slow" else 1.0
    healthy = _healthy_condition(passes)
    return replace(healthy, name=name, fault=fault, setting=setting, unit=unit, step_time_factor=factor)


def _repeat_note(healthy: list[_Pass], faulty: list[MeasuredCondition]) -> str:
    repeats = len(healthy)
    same = all(run.digests == healthy[0].digests for run in healthy)
    steady = all(np.array_equal(c.values[:, :1], c.values[:, -1:], equal_nan=True) for c in faulty)
    if same and steady:
        return (
            f"{repeats} repeats of every prompt were bit-identical, the last healthy one after"
            " every fault was undone."
        )
    return f"The {repeats} repeats of a prompt were not all bit-identical on this machine."
