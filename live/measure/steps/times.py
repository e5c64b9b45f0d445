"""Step times of one session: measured, fitted, and refused if they are too uncertain."""

from __future__ import annotations

from collections.abc import Sequence

from contracts.documents.serving_path import ServingPath
from contracts.documents.step_time import StepPoint, StepTime
from contracts.errors import MeasurementError
from contracts.loading.profiles import REFUSED_STEP_TIMES
from live.measure.backend import Session, StepPlan
from live.measure.steps.model import fit_step_time, step_time_ratio, widest_point, widest_prediction
from live.measure.steps.serving import StreamingSession, measure_serving
from live.measure.steps.timed_requests import TooFewRoundsError

_SERVER_PLAN = StepPlan(
    batches=(1, 4),
    contexts=(32, 128),
    decode_steps=12,
    rounds=3,
    blocks=1,
    most_blocks=1,
    clock="wall",
    least=True,
)
_NEXT = "measure for longer (--step-seconds), or when the machine is quieter"


def measure_steps(session: Session, plan: StepPlan | None) -> tuple[StepTime | None, list[str]]:
    """``(model, notes)``; the model is None if it was not requested or not found, and the notes say why."""
    if plan is None:
        return None, ["Step times were not measured: --no-step-times. This kernel cannot be simulated."]
    try:
        points = session.time_steps(plan)
    except TooFewRoundsError as error:
        return None, [f"{REFUSED_STEP_TIMES}: {error}. This kernel cannot be simulated."]
    try:
        fitted = _determined(points, plan.most_half_width)
    except MeasurementError as error:
        return None, [f"{REFUSED_STEP_TIMES}: {error}. This kernel cannot be simulated."]
    return fitted, _step_notes(fitted, plan)


def measure_served(
    session: Session, plan: StepPlan | None, step: StepTime | None
) -> tuple[ServingPath | None, list[str]]:
    """What serving adds to ``step``, and notes; None if it was not requested or cannot be measured."""
    if plan is None or step is None or not plan.streams or not isinstance(session, StreamingSession):
        return None, []
    try:
        return measure_serving(session, step, plan.streams), []
    except MeasurementError as error:
        return None, [f"The serving path was not measured: {error}. Simulated latencies are of steps alone."]


def slowdown(other: Session, healthy: Session) -> float:
    """Ratio of the least times of equal requests to ``other`` and to ``healthy``."""
    return step_time_ratio(other.time_steps(_SERVER_PLAN), healthy.time_steps(_SERVER_PLAN))


def _determined(points: Sequence[StepPoint], most: float) -> StepTime:
    """The fitted model; MeasurementError if its predicted step times are too uncertain."""
    fitted = fit_step_time(points)
    if widest_prediction(fitted) > most:
        raise MeasurementError(
            f"{_how_sure(fitted)}, and {100.0 * most:.0f} % is the most that is accepted: {_NEXT},"
            " accept more by --step-half-width, or do without by --no-step-times"
        )
    return fitted


def _how_sure(fitted: StepTime) -> str:
    """The least certain prediction, in words."""
    widest = widest_point(fitted)
    if widest is None:
        return "no step time is predicted"
    work = f"{widest.decode_sequences} sequences decoding over {widest.context_tokens} tokens"
    work += f", {widest.prefill_tokens} tokens prefilled" if widest.prefill_tokens else ""
    share = 100.0 * widest_prediction(fitted)
    message = f"{widest.predicted_ms:.3g} +- {widest.half_width_ms:.2g} ms"
    return f"predicted step times are known to {share:.0f} % only ({message} for {work})"


def _step_notes(fitted: StepTime, plan: StepPlan) -> list[str]:
    """Notes that a reader needs to interpret the coefficients."""
    notes: list[str] = []
    if fitted.dropped_points:
        notes.append(f"{fitted.dropped_points} timed steps took no time by the clock and were left out.")
    if widest_prediction(fitted) > plan.wanted_half_width:
        sure = _how_sure(fitted)
        notes.append(f"{sure[0].upper()}{sure[1:]}, not to {100.0 * plan.wanted_half_width:.0f} %: {_NEXT}.")
    return notes
