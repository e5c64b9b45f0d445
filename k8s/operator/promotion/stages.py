"""Documents of a policy with its promotions in force: stages, homes, caps and mirrors. Pure.

The shield enforces the pool's stages, so a promotion needs no other path: a kernel in shadow gets no weight,
whatever a policy proposes, and a canary at most its cap. A kernel of role ``candidate`` without a promotion
is in shadow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from contracts.documents.pool import Home, PoolKernel
from controller.promotion.records import PromotionStage, PromotionState, mirrored_ratio, most_ratio
from k8s.operator.admission import Documents
from k8s.operator.fleet import backend_of
from k8s.operator.pods.upgrades import Announced
from k8s.operator.promotion.records import Attempt
from k8s.routes.rules import Mirror

PoolStage = Literal["shadow", "canary", "active"]


def with_promotions(documents: Documents, attempts: Sequence[Attempt]) -> Documents:
    """``documents`` with the effects of ``attempts``; the same object if there is nothing to change."""
    if not attempts and all(kernel.role != "candidate" for kernel in documents.pool.spec.kernels):
        return documents
    by_kernel = {one.candidate: one for one in attempts}
    kernels = tuple(_staged(kernel, by_kernel.get(kernel.name)) for kernel in documents.pool.spec.kernels)
    changes = {"kernels": kernels, "home": _homes(documents, attempts)}
    pool = documents.pool.model_copy(update={"spec": documents.pool.spec.model_copy(update=changes)})
    policy = documents.policy
    if (most := _canary_ratio(attempts)) is not None:
        shield = policy.spec.shield.model_copy(update={"new_kernel_traffic_ratio": most})
        policy = policy.model_copy(update={"spec": policy.spec.model_copy(update={"shield": shield})})
    mirrors = _mirrors(kernels, by_kernel)
    return replace(documents, pool=pool, policy=policy, mirrors=mirrors, announced=_announced(attempts))


def pool_stage(state: PromotionState) -> PoolStage:
    """Pool stage of a candidate with promotion state ``state``."""
    if state.stage is PromotionStage.FULL:
        return "active"
    return "canary" if state.stage is PromotionStage.CANARY and not state.paused else "shadow"


def _announced(attempts: Sequence[Attempt]) -> tuple[Announced, ...]:
    """Announced upgrades in place. They apply in every stage, also after a rollback, until the promotion is
    deleted.
    """
    specs = [one.document.spec for one in attempts]
    return tuple(
        Announced(kernel=one.replaces, candidate=one.candidate, fingerprint=one.announced_fingerprint)
        for one in specs
        if one.replaces is not None and one.announced_fingerprint is not None
    )


def _staged(kernel: PoolKernel, attempt: Attempt | None) -> PoolKernel:
    if attempt is not None:
        return kernel.model_copy(update={"stage": pool_stage(attempt.state)})
    return kernel.model_copy(update={"stage": "shadow"}) if kernel.role == "candidate" else kernel


def _homes(documents: Documents, attempts: Sequence[Attempt]) -> tuple[Home, ...]:
    """Home kernels; slices of a replaced kernel get the candidate as home once it is in stage Full."""
    heirs = {
        one.document.spec.replaces: one.candidate
        for one in attempts
        if one.state.stage is PromotionStage.FULL and one.document.spec.replaces is not None
    }
    return tuple(
        home.model_copy(update={"kernel": heirs.get(home.kernel, home.kernel)})
        for home in documents.pool.spec.home
    )


def _canary_ratio(attempts: Sequence[Attempt]) -> float | None:
    """Cap of all canaries: the smallest of their caps, because the shield has one cap; None without any."""
    found = [most_ratio(one.state, one.terms) for one in attempts if pool_stage(one.state) == "canary"]
    return min(found) if found else None


def _mirrors(kernels: Sequence[PoolKernel], by_kernel: dict[str, Attempt]) -> tuple[Mirror, ...]:
    found = []
    for kernel in kernels:
        attempt = by_kernel.get(kernel.name)
        ratio = 0.0 if attempt is None else mirrored_ratio(attempt.state, attempt.terms)
        if ratio > 0.0 and kernel.backend is not None:
            found.append(Mirror(backend=backend_of(kernel.backend), ratio=ratio))
    return tuple(found)
