"""A contract for measured kernels: thresholds from healthy certify prompts and from the bound chain.

Method, stated in each clause's reason:

* a *mean* clause: the upper confidence limit of the mean over the certify prompts of the worst slice of
  the worst kernel, times the margin;
* a *percentile or per-observation* clause: the distribution-free upper limit of the quantile (an order
  statistic), or the largest prompt where too few were measured for one, times the margin;
* the *reward* clause: the largest mean TV that keeps the drift of a one-step reward within the tolerance,
  from the bound chain and independent of any kernel.

Only certify prompts are looked at: probes and traffic stay unseen. What was not measured gets no clause.
"""

from __future__ import annotations

from collections.abc import Sequence

from contracts.assess.observations import Observations, from_samples
from contracts.assess.proposed_clauses import CERTIFY, ProposalTerms, SampledKernel, proposed_clauses
from contracts.documents.contract import (
    ContractSpec,
    Detection,
    Escalation,
    KernelContract,
    Refinement,
    Slice,
)
from contracts.documents.envelope import API_VERSION, Metadata
from contracts.documents.profile import HEALTHY

__all__ = ["ProposalTerms", "SampledKernel", "propose"]

#: Slices that unmarked traffic most resembles; only measured slices can be judged and simulated.
_DEFAULTS = ("default", "prose")


def propose(name: str, kernels: Sequence[SampledKernel], terms: ProposalTerms) -> KernelContract:
    """A contract that every kernel of ``kernels`` keeps with ``terms.margin`` to spare.

    The reward clause is independent of the kernels; its reason says whether they keep it.

    Raises ValueError where no kernel has healthy certify prompts with values of divergences.
    """
    seen = [(k.name, from_samples(k.samples, "", HEALTHY, CERTIFY)) for k in kernels]
    clauses = proposed_clauses(seen, kernels, terms)
    if not any(clause.family == "N" for clause in clauses):
        raise ValueError("no kernel has healthy certify prompts with values of divergences")
    return KernelContract(
        api_version=API_VERSION,
        metadata=Metadata(name=name),
        spec=ContractSpec(
            description=_description([k.name for k in kernels], terms),
            temperature=terms.temperature,
            slices=_slices(seen),
            clauses=tuple(clauses),
            escalation=_escalation(),
            detection=Detection(),
        ),
    )


def _slices(seen: list[tuple[str, Observations]]) -> tuple[Slice, ...]:
    """The measured slices; unmarked traffic belongs to one of ``_DEFAULTS``, else to the first slice."""
    names = list(dict.fromkeys(place for _, observations in seen for place in observations.slices))
    default = next((name for name in _DEFAULTS if name in names), names[0])
    return tuple(Slice(name=name, default=name == default) for name in names)


def _escalation() -> Escalation:
    return Escalation(
        guard_threshold=0.5,
        fallback_threshold=2.0,
        when_uncertified="serve_known_good",
        refinements=(
            Refinement(
                family="N",
                level="L2",
                action="higher_precision_kernel",
                reason="Numbers drift; precision is the first remedy.",
            ),
            Refinement(
                family="O",
                level="L3",
                action="rollback",
                reason="What cannot be told apart from another build is rolled back whatever its drift.",
            ),
        ),
    )


def _description(kernels: list[str], terms: ProposalTerms) -> str:
    return (
        f"Proposed from the healthy certify prompts of {', '.join(kernels)}, margin {terms.margin:g}, "
        f"confidence {100 * terms.confidence:g} %. Latency, throughput and labelled behaviour are not in a "
        "profile's samples and get no clause: add them from served traffic."
    )
