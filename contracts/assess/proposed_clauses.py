"""The clauses that ``contracts.assess.propose`` writes: a function per kind, reasons with their numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from contracts.assess.limits import mean_limits, observations_needed, quantile_place, rate_limits
from contracts.assess.observations import Observations, from_samples
from contracts.assess.samples import KernelSamples
from contracts.assess.several import lower_bound_note, shared_estimator
from contracts.documents.contract import Clause, Estimator
from contracts.documents.profile import HEALTHY
from contracts.metrics import metric

CERTIFY = "certify"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledKernel:
    """One kernel and what was measured of it."""

    name: str
    samples: KernelSamples  # its healthy condition sets the thresholds


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalTerms:
    """What the caller decides."""

    margin: float = 2.0  # factor >= 1 between the healthy limit and the threshold
    confidence: float = 0.95  # one-sided, of the healthy limit
    reward_drift: float = 0.05  # tolerated change of a one-step reward, as a share of its range
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.margin) and self.margin >= 1.0):
            raise ValueError(f"margin must be a number >= 1, got {self.margin}")
        if not 0.5 < self.confidence < 1.0:
            raise ValueError(f"confidence must lie between 0.5 and 1, got {self.confidence}")
        if not 0.0 < self.reward_drift <= 1.0:
            raise ValueError(f"reward drift must lie in (0, 1], got {self.reward_drift}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """Upper limit of the worst slice of the worst kernel, and how it was found."""

    value: float  # in the metric's unit
    kernel: str
    slice: str
    observations: int  # how many are behind it
    how: str  # of what it is the limit
    estimator: Estimator  # that it was measured by


def proposed_clauses(
    seen: list[tuple[str, Observations]], kernels: Sequence[SampledKernel], terms: ProposalTerms
) -> list[Clause]:
    """Every clause that these measurements allow; ``seen`` are healthy certify observations per kernel."""
    found = [
        _mean_clause("kl_mean", seen, kernels, terms),
        _reward_clause(seen, terms),
        _mean_clause("top1_flip", seen, kernels, terms),
        _mean_clause("abs_log_w_mean", seen, kernels, terms),
        _percentile_clause("kl_p95", seen, kernels, terms),
        _percentile_clause("logit_linf_p95", seen, kernels, terms),
        _prompt_clause(seen, terms),
        _fingerprint_clause(),
    ]
    return [clause for clause in found if clause is not None]


def _worst(seen: list[tuple[str, Observations]], name: str, terms: ProposalTerms) -> _Limit | None:
    """Largest upper limit of ``name`` over kernels and slices, by the best estimator they share."""
    spec, estimator = metric(name), shared_estimator(seen, name)
    if estimator is None:
        return None
    column = spec.column(estimator)
    found: list[_Limit] = []
    for kernel, observations in seen:
        for place in observations.slices:
            values = observations.values(column, place)
            if values is None or values.size < 2:
                continue
            if spec.percentile is None:
                value, how = mean_limits(values, terms.confidence).high, "upper limit of the mean"
            else:
                value, how = quantile_limit(values, spec.percentile / 100.0, terms.confidence)
            found.append(
                _Limit(
                    value=value,
                    kernel=kernel,
                    slice=place,
                    observations=values.size,
                    how=how,
                    estimator=estimator,
                )
            )
    return max(found, key=lambda limit: limit.value, default=None)


def quantile_limit(values: np.ndarray, quantile: float, confidence: float) -> tuple[float, str]:
    """(upper confidence limit of a quantile, how): the smallest order statistic that gives it.

    Where even the largest of n values does not (n < ln(1 - confidence) / ln(quantile)), the largest.
    """
    ordered = np.sort(values)
    place = quantile_place(ordered.size, quantile, confidence)
    if place < ordered.size:
        return float(ordered[place]), f"upper limit of the {100 * quantile:g} % quantile"
    return float(ordered[-1]), f"largest prompt (too few for a limit of the {100 * quantile:g} % quantile)"


def round_up(value: float, digits: int = 2) -> float:
    """The least number of ``digits`` significant digits at or above ``value``; 0 stays 0."""
    if value == 0.0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.{digits - 1}e}")


def _source(limit: _Limit, terms: ProposalTerms) -> str:
    share = f"{100 * terms.confidence:g} %"
    return (
        f"{share} {limit.how} over {limit.observations} healthy certify prompts of the worst slice "
        f"({limit.slice}, kernel {limit.kernel}): {limit.value:.3g}; times the margin {terms.margin:g}."
        + lower_bound_note(limit.estimator)
    )


def _mean_clause(
    name: str, seen: list[tuple[str, Observations]], kernels: Sequence[SampledKernel], terms: ProposalTerms
) -> Clause | None:
    limit, spec = _worst(seen, name, terms), metric(name)
    if limit is None or limit.value <= 0.0:
        return None
    threshold = round_up(limit.value * terms.margin)
    if spec.unit in ("ratio", "probability") and threshold >= 1.0:
        return None
    ceiling = 1.0 if spec.unit in ("ratio", "probability") else math.inf
    return Clause(
        id=f"N-{name.replace('_', '-')}",
        family="N",
        metric=name,
        estimator=limit.estimator,
        threshold=threshold,
        unit=spec.unit,
        budget=0.05,
        level="L1" if name == "top1_flip" else "L2",
        clip=min(ceiling, round_up(50.0 * threshold)),
        remediation="Probe more; if it stays, serve the slice from a kernel of higher precision.",
        reason=_source(limit, terms) + _faults_above(limit.estimator, name, threshold, kernels),
    )


def _faults_above(estimator: str, name: str, threshold: float, kernels: Sequence[SampledKernel]) -> str:
    """Which measured faults lie above the threshold on the mean of some slice."""
    column = metric(name).column(estimator)
    caught: list[str] = []
    missed: list[str] = []
    for kernel in kernels:
        for condition in kernel.samples.condition_names:
            if condition != HEALTHY:
                observations = from_samples(kernel.samples, "", condition, CERTIFY)
                values = [observations.values(column, place) for place in observations.slices]
                worst = max((float(each.mean()) for each in values if each is not None), default=0.0)
                (caught if worst > threshold else missed).append(f"{kernel.name}/{condition}")
    message = f" Measured faults above it on some slice: {', '.join(caught[:12])}." if caught else ""
    return message + (f" Not above it: {', '.join(missed[:12])}." if missed else "")


def _reward_clause(seen: list[tuple[str, Observations]], terms: ProposalTerms) -> Clause | None:
    limit = _worst(seen, "tv_mean", terms)
    if limit is None:
        return None
    keeps = "keep it" if limit.value <= terms.reward_drift else "do not all keep it"
    return Clause(
        id="N-tv-mean",
        family="N",
        metric="tv_mean",
        estimator=limit.estimator,
        threshold=terms.reward_drift,
        unit="probability",
        budget=0.0,
        level="L3",
        clip=1.0,
        remediation="Serve the slice from the known-good kernel.",
        reason=(
            f"Bound chain: reward drift of one step is at most (r_max - r_min) TV, so a mean TV of "
            f"{terms.reward_drift:g} keeps it within {100 * terms.reward_drift:g} % of the reward's range. "
            f"The kernels {keeps}: {100 * terms.confidence:g} % {limit.how} of the worst slice "
            f"({limit.slice}, kernel {limit.kernel}) is {limit.value:.3g}.{lower_bound_note(limit.estimator)}"
        ),
    )


def _percentile_clause(
    name: str, seen: list[tuple[str, Observations]], kernels: Sequence[SampledKernel], terms: ProposalTerms
) -> Clause | None:
    limit, spec = _worst(seen, name, terms), metric(name)
    rate = round(spec.rate_limit or 0.0, 12)
    slices, told = _decidable(kernels, observations_needed(rate, terms.confidence))
    if limit is None or limit.value <= 0.0 or not slices:
        return None
    return Clause(
        id=f"N-{name.replace('_', '-')}",
        family="N",
        metric=name,
        estimator=limit.estimator,
        threshold=round_up(limit.value * terms.margin),
        unit=spec.unit,
        slices=slices if told else None,
        budget=rate,
        level="L2",
        remediation="Look which prompts moved; prefer a kernel of higher precision for the slice.",
        reason=_source(limit, terms) + told,
    )


def _decidable(kernels: Sequence[SampledKernel], needed: int) -> tuple[tuple[str, ...], str]:
    """Slices with enough prompts in the file to ever pass a percentile clause, and a remark on the others."""
    names = dict.fromkeys(place for kernel in kernels for place in kernel.samples.slices)
    least = {
        name: min(
            kernel.samples.prompt_slice.count(name) for kernel in kernels if name in kernel.samples.slices
        )
        for name in names
    }
    enough = [name for name in names if least[name] >= needed]
    few = [name for name in names if least[name] < needed]
    message = f" Not for {', '.join(few)}: fewer than {needed} prompts can never show it." if few else ""
    return tuple(enough), message


def _prompt_clause(seen: list[tuple[str, Observations]], terms: ProposalTerms) -> Clause | None:
    """Hard clause on every prompt: far beyond the largest healthy one, with its certified null rate."""
    estimator = shared_estimator(seen, "kl")
    column = metric("kl").column(estimator or "full_vocab")
    cells = [
        (kernel, observations.values(column, place))
        for kernel, observations in seen
        for place in observations.slices
    ]
    known = [(kernel, values) for kernel, values in cells if values is not None]
    kernel, values = max(known, key=lambda pair: float(pair[1].max()), default=("", np.zeros(1)))
    if estimator is None or values.max() <= 0.0:
        return None
    prompts = min(values.size for _, values in known)
    null_rate = rate_limits(0, prompts, terms.confidence).high
    return Clause(
        id="N-kl-prompt",
        family="N",
        metric="kl",
        estimator=estimator,
        threshold=round_up(float(values.max()) * 4.0 * terms.margin),
        unit="nats",
        budget=0.0,
        null_rate=round_up(null_rate),
        level="L3",
        remediation="Take the replica out of rotation and compare it with its peers.",
        reason=(
            f"Largest healthy certify prompt (kernel {kernel}): {float(values.max()):.3g}; times 4 and the "
            f"margin {terms.margin:g}. None of the {prompts} prompts of the smallest slice comes near, "
            f"so with {100 * terms.confidence:g} % confidence the healthy rate is at most {null_rate:.3g}: "
            f"the null rate.{lower_bound_note(estimator)}"
        ),
    )


def _fingerprint_clause() -> Clause:
    return Clause(
        id="O-fingerprint",
        family="O",
        metric="fingerprint_match",
        threshold=0.0,
        budget=0.0,
        null_rate=0.0,
        level="L3",
        remediation="Roll the replica back to the contracted build.",
        reason="A replica that runs another build was not measured: nothing above speaks of it.",
    )
