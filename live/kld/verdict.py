"""Judges a comparison by a contract's numeric clauses, with one observation per prompt."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from contracts.assess.evaluate import Evaluation, evaluate
from contracts.assess.gate import Waiver
from contracts.assess.observations import ALL_SPLITS, Observations, ObservedColumn
from contracts.documents import KernelContract
from contracts.errors import refusal
from live.kld.positions import PromptPositions

#: Name of the condition for observations of a running server.
CONDITION = "live"
_FULL: dict[str, Callable[[PromptPositions], float]] = {
    "kl_mean": lambda each: float(each.column("kl").mean()),
    "kl_max": lambda each: float(each.column("kl").max()),
    "tv_mean": lambda each: float(each.column("tv").mean()),
    "tv_max": lambda each: float(each.column("tv").max()),
    "linf_mean": lambda each: float(each.column("linf").mean()),
    "linf_max": lambda each: float(each.column("linf").max()),
    "l2_mean": lambda each: float(each.column("l2").mean()),
    "top1_flip": lambda each: float(1.0 - each.column("same_top").mean()),
    "top1_overlap": lambda each: float(each.column("same_top").mean()),
    "abs_log_w": lambda each: float(each.column("abs_log_w").mean()),
    # E[w log w] is KL(reference || server) if both allow the same tokens, and infinite where KL is.
    "w_log_w": lambda each: float(each.column("kl").mean()),
    "token_prob_error": lambda each: float(each.column("token_prob_error").mean()),
}
#: Columns that a list of the most probable tokens provides.
_TOP = ("kl_mean", "tv_mean", "top1_flip")


def observations(found: Sequence[PromptPositions]) -> Observations:
    """One observation per prompt and column of ``contracts.metrics``; lower bounds are ``top_k`` columns."""
    exact = all(each.exact for each in found)
    estimator, names = ("full_vocab", tuple(_FULL)) if exact else ("top_k", _TOP)
    slices = dict.fromkeys(each.prompt.slice for each in found)
    columns = tuple(
        ObservedColumn(slice=slice_, column=f"{name}@{estimator}", values=_values(found, slice_, name))
        for slice_ in slices
        for name in names
    )
    digest = hashlib.sha256(b"".join(each.values.tobytes() for each in found)).hexdigest()
    return Observations(sha256=digest, condition=CONDITION, split=ALL_SPLITS, columns=columns)


def judge(
    contract: KernelContract, found: Sequence[PromptPositions], waivers: Sequence[Waiver] = ()
) -> Evaluation:
    """Verdict on the numeric clauses (family N) of ``contract``; other clauses need other evidence.

    Raises DocumentError for a contract without such clauses.
    """
    clauses = tuple(clause for clause in contract.spec.clauses if clause.family == "N")
    if not clauses:
        raise refusal(
            contract.metadata.name,
            "a clause of family N",
            "none",
            "name another contract",
            path="spec.clauses",
        )
    numeric = contract.model_copy(update={"spec": contract.spec.model_copy(update={"clauses": clauses})})
    return evaluate(numeric, observations(found), waivers=waivers)


def _values(found: Sequence[PromptPositions], slice_: str, name: str) -> NDArray[np.float64]:
    return np.array([_FULL[name](each) for each in found if each.prompt.slice == slice_])
