"""Whether profiles of one server agree on the times of its steps, each within what it says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from contracts.documents.profile import StepHalfWidths, StepTime
from contracts.errors import MeasurementError
from live.measure.step_model import widest_prediction

#: A predicted step time that is less sure than this share of it is not known well enough to plan by.
WANTED_SHARE = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class CoefficientAgreement:
    """One coefficient in every profile, ms. apart: the largest difference of two, by the sum of their
    half-widths; above 1 they contradict each other.
    """

    name: str
    values: tuple[float, ...]
    half_widths: tuple[float, ...]
    apart: float

    @property
    def agrees(self) -> bool:
        """Whether every two intervals meet."""
        return self.apart <= 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAgreement:
    """All coefficients; half_width_shares: of the least sure predicted step time of every profile."""

    coefficients: tuple[CoefficientAgreement, ...]
    half_width_shares: tuple[float, ...]

    @property
    def agrees(self) -> bool:
        """Whether every coefficient agrees and every prediction is sure enough."""
        sure = all(share <= WANTED_SHARE for share in self.half_width_shares)
        return sure and all(one.agrees for one in self.coefficients)


def step_agreement(models: Sequence[StepTime]) -> StepAgreement:
    """Compare ``models`` of one server.

    Raises MeasurementError for fewer than two, or one that states no uncertainty.
    """
    if len(models) < 2 or any(one.half_widths is None for one in models):
        raise MeasurementError(
            "two or more profiles that state the half-widths of their step times are needed"
        )
    return StepAgreement(
        coefficients=tuple(_compared(name, models) for name in StepHalfWidths.model_fields),
        half_width_shares=tuple(widest_prediction(one) for one in models),
    )


def _compared(name: str, models: Sequence[StepTime]) -> CoefficientAgreement:
    values = tuple(float(getattr(one, name)) for one in models)
    widths = tuple(float(getattr(one.half_widths, name)) for one in models)
    pairs = combinations(zip(values, widths, strict=True), 2)
    return CoefficientAgreement(
        name=name,
        values=values,
        half_widths=widths,
        apart=max(_apart(abs(a - b), wide + narrow) for (a, wide), (b, narrow) in pairs),
    )


def _apart(difference: float, together: float) -> float:
    if difference == 0.0:
        return 0.0
    return difference / together if together > 0.0 else float("inf")
