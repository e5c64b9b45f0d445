"""Compares profiles of one server: whether they agree on its step times and on a replica's capacity.

A coefficient or a predicted step time agrees if every two intervals overlap. Wide intervals always overlap,
so every prediction must also have a relative half-width of at most ``WANTED_SHARE``. Capacity has no
interval, but plans are made from it, so it may differ by ``CAPACITY_SHARE`` at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from contracts.compiled.build import request_delay_s, served_step_s
from contracts.compiled.steady_state import Demand, EngineModel, capacity_rps
from contracts.documents.serving_path import ServingPath
from contracts.documents.step_time import StepHalfWidths, StepPrediction, StepTime
from contracts.errors import MeasurementError
from contracts.units import s_from_ms
from live.measure.steps.model import OPERATING_POINTS, widest_prediction

#: Largest relative half-width of a predicted step time that is good enough to plan by.
WANTED_SHARE = 0.15
#: Largest excess of the largest capacity over the smallest that counts as agreement.
CAPACITY_SHARE = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueAgreement:
    """One coefficient or predicted step time in every profile, ms.

    apart: the largest difference of two values divided by the sum of their half-widths; above 1 they
    contradict each other.
    """

    name: str
    values: tuple[float, ...]
    half_widths: tuple[float, ...]
    apart: float

    @property
    def agrees(self) -> bool:
        """Whether every two intervals overlap."""
        return self.apart <= 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityTerms:
    """The request and the replica for which capacity is computed; SLOs in ms, inf: none."""

    prompt_tokens: float = 48.0
    output_tokens: float = 24.0
    max_sequences: int | None = None  # at once; None: as many as the profiles predict
    ttft_ms: float = float("inf")
    inter_token_ms: float = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityAgreement:
    """Capacity of one replica by every profile, requests per second. served: with the serving path."""

    carried_rps: tuple[float, ...]
    max_sequences: int
    served: bool

    @property
    def apart(self) -> float:
        """The largest capacity divided by the smallest, minus 1."""
        return max(self.carried_rps) / min(self.carried_rps) - 1.0

    @property
    def agrees(self) -> bool:
        """Whether plans by either profile would be alike."""
        return self.apart <= CAPACITY_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAgreement:
    """The whole comparison; half_width_shares: of the least certain predicted step time of every profile."""

    coefficients: tuple[ValueAgreement, ...]
    predictions: tuple[ValueAgreement, ...]
    half_width_shares: tuple[float, ...]
    capacity: CapacityAgreement

    @property
    def agrees(self) -> bool:
        """Whether coefficients, predictions and capacity agree, and predictions are certain enough."""
        sure = all(share <= WANTED_SHARE for share in self.half_width_shares)
        steps = all(one.agrees for one in (*self.coefficients, *self.predictions))
        return sure and steps and self.capacity.agrees


def step_agreement(
    models: Sequence[StepTime],
    served: Sequence[ServingPath | None] = (),
    terms: CapacityTerms | None = None,
) -> StepAgreement:
    """Compare ``models`` of one server; served: its serving path in each profile that has it.

    Raises MeasurementError for fewer than two models, for a model without half-widths or with predictions of
    other steps, and for terms under which the capacity is zero.
    """
    if len(models) < 2 or any(one.half_widths is None for one in models):
        raise MeasurementError(
            "two or more profiles that state the half-widths of their step times are needed"
        )
    predicted = _shared_predictions(models)
    most = max(one.decode_sequences for one in models[0].predictions or ())
    return StepAgreement(
        coefficients=tuple(_coefficient(name, models) for name in StepHalfWidths.model_fields),
        predictions=predicted,
        half_width_shares=tuple(widest_prediction(one) for one in models),
        capacity=_capacity(models, served, terms or CapacityTerms(), most),
    )


def _coefficient(name: str, models: Sequence[StepTime]) -> ValueAgreement:
    values = tuple(float(getattr(one, name)) for one in models)
    return _compared(name, values, tuple(float(getattr(one.half_widths, name)) for one in models))


def _shared_predictions(models: Sequence[StepTime]) -> tuple[ValueAgreement, ...]:
    """The operating points, which must be equal in all profiles."""
    stated = [{_work(one): one for one in model.predictions or ()} for model in models]
    if len(stated[0]) < len(OPERATING_POINTS) or any(each.keys() != stated[0].keys() for each in stated):
        message = "; ".join(", ".join(map(_named, each)) or "none" for each in stated)
        raise MeasurementError(
            f"the profiles predict other steps ({message}): measure them with the same --step-sequences"
        )
    if any(one.predicted_ms <= 0.0 for each in stated for one in each.values()):
        raise MeasurementError("a profile predicts steps that take no time: measure it again")
    return tuple(
        _compared(
            _named(work),
            tuple(each[work].predicted_ms for each in stated),
            tuple(each[work].half_width_ms for each in stated),
        )
        for work in stated[0]
    )


def _work(one: StepPrediction) -> tuple[int, int, int]:
    return one.prefill_tokens, one.decode_sequences, one.context_tokens


def _named(work: tuple[int, int, int]) -> str:
    prefill, sequences, context = work
    message = f"{sequences} sequences over {context} tokens"
    return f"{message}, {prefill} prefilled" if prefill else message


def _compared(name: str, values: tuple[float, ...], widths: tuple[float, ...]) -> ValueAgreement:
    pairs = combinations(zip(values, widths, strict=True), 2)
    return ValueAgreement(
        name=name,
        values=values,
        half_widths=widths,
        apart=max(_apart(abs(a - b), wide + narrow) for (a, wide), (b, narrow) in pairs),
    )


def _apart(difference: float, together: float) -> float:
    if difference == 0.0:
        return 0.0
    return difference / together if together > 0.0 else float("inf")


def _capacity(
    models: Sequence[StepTime], served: Sequence[ServingPath | None], terms: CapacityTerms, most: int
) -> CapacityAgreement:
    """Capacity of one replica, as simulator and controller compute it; with serving paths if all have one."""
    held = terms.max_sequences or most
    whole = len(served) == len(models) and None not in served
    paths = served if whole else [None] * len(models)
    found = tuple(_carried(one, path, terms, held) for one, path in zip(models, paths, strict=True))
    return CapacityAgreement(carried_rps=found, max_sequences=held, served=whole)


def _carried(step: StepTime, serving: ServingPath | None, terms: CapacityTerms, held: int) -> float:
    demand = Demand(prompt_tokens=terms.prompt_tokens, output_tokens=terms.output_tokens)
    model = EngineModel(
        step_s=served_step_s(step, serving)[None],
        request_s=(request_delay_s(serving),),
        sequences=np.array([float(held)]),
        kv_tokens=np.array([float("inf")]),
        inter_token_s=s_from_ms(terms.inter_token_ms),
        first_token_s=s_from_ms(terms.ttft_ms),
        demand=demand,
    )
    return capacity_rps(model, model.step_s[0], demand, 0)
