"""``KernelPromotion``: stages by which a candidate kernel enters service, and the evidence each needs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contracts.documents.envelope import (
    Count,
    DnsName,
    Document,
    FileRef,
    Name,
    Positive,
    PositiveCount,
    Sha256,
    Strict,
    Text,
)

GatedStage = Literal["shadow", "canary", "full"]
HookKind = Literal["confirm", "veto", "event", "rollback"]

#: An http or https URL without user, password, fragment, spaces and control characters.
HookUrl = Annotated[
    str,
    Field(
        pattern=r"^https?://[A-Za-z0-9.\[\]:_-]+(/[A-Za-z0-9._~%!$&'()*+,;=:@/?-]*)?$",
        max_length=1000,
    ),
]

Share = Annotated[float, Field(gt=0.0, le=0.5)]


class OfflineEvidence(Strict):
    """Evidence measured before the candidate serves any request: either evaluation or register_file."""

    evaluation: FileRef | None = None
    """Output of `selvage contract evaluate --json` on the candidate's profile, pinned by SHA-256: a path, a
    ``package:`` URI or ``configmap:NAME/KEY``. It is judged again from the profile's samples. Absent:
    register_file is given."""
    register_file: FileRef | None = None
    """Register written by `selvage contract register`, pinned by SHA-256; its newest entry on the candidate's
    build and contract decides. Absent: evaluation is given."""
    checkpoint_sha256: Sha256 | None = None
    """SHA-256 of the weights that the register's entry must be about; absent: any weights."""


class StageSpec(Strict):
    """Requirements of a stage; counts start over whenever an L2 clause is in alarm."""

    stability_s: Positive
    """Judged time without an alarm on an L2 or L3 clause before the next stage, s."""
    least_probes: Count
    """Fewest answered probes on every slice since the last alarm on an L2 clause, a count."""
    least_answers: Count = 0
    """Fewest requests that the candidate's servers finish since the last alarm on an L2 clause, a count."""
    deadline_s: Positive
    """Judged time in the stage after which the promotion ends as inconclusive, s."""


class ShadowStage(StageSpec):
    """Stage in which requests are mirrored to the candidate and its answers are dropped."""

    stability_s: Positive = 600.0
    """Judged time without an alarm on an L2 or L3 clause before stage Canary, s."""
    least_probes: Count = 100
    """Fewest answered probes on every slice since the last alarm on an L2 clause, a count."""
    deadline_s: Positive = 7200.0
    """Judged time in stage Shadow after which the promotion ends as inconclusive, s."""
    mirror_ratio: Share = 0.05
    """Share of every slice's requests that is mirrored, above 0 to 0.5."""


class CanaryStage(StageSpec):
    """Stage in which the candidate serves a bounded share of every slice."""

    stability_s: Positive = 3600.0
    """Judged time without an alarm on an L2 or L3 clause before stage Full, s."""
    least_probes: Count = 300
    """Fewest answered probes on every slice since the last alarm on an L2 clause, a count."""
    deadline_s: Positive = 21600.0
    """Judged time in stage Canary after which the promotion ends as inconclusive, s."""
    weight_ratio: Share = 0.05
    """Largest weight of the candidate on a slice, above 0 to 0.5."""
    guard_ratio: Annotated[float, Field(ge=0.0, le=0.5)] = 0.01
    """Largest weight of the candidate on a slice while an L2 clause is in alarm, 0 to weight_ratio."""


class Webhook(Strict):
    """An external service that is asked or informed by an HTTP POST with a JSON body."""

    name: DnsName
    """Name of the webhook, unique in this promotion."""
    kind: HookKind
    """Purpose of the calls. confirm: a stage is entered only while the last answer is 2xx. veto: 403 or 409
    rolls back, 2xx means no objection, and any other answer holds the next stage back. event: informed of
    every change of stage and verdict. rollback: informed when the candidate is rolled back."""
    url: HookUrl
    """URL of the service, http or https, without user, password and fragment. Its origin must be one that the
    operator was started with (--webhook-origin)."""
    stages: Annotated[tuple[GatedStage, ...], Field(min_length=1, max_length=3)] | None = None
    """Stages that a confirm webhook opens, or in which a veto webhook is asked; absent: all stages."""
    timeout_s: Annotated[float, Field(gt=0.0, le=30.0)] = 5.0
    """Longest time of a call until its answer is complete, s."""
    every_s: Annotated[float, Field(ge=1.0, le=3600.0)] = 10.0
    """Time between two calls of a confirm or veto webhook, and before a failed event is sent again, s."""


class PromotionSpec(Strict):
    """One candidate, its stages and the evidence they need."""

    description: Text
    """What the candidate is, as text for people."""
    policy: DnsName
    """Name of the RoutePolicy whose route, pool and contract the promotion uses."""
    candidate: Name
    """Name of the kernel of the pool to promote; its role is candidate or serving."""
    replaces: Name | None = None
    """Kernel whose home slices move to the candidate after the last stage; absent: homes do not change."""
    announced_fingerprint: Annotated[str, Field(min_length=1, max_length=400)] | None = None
    """Fingerprint that servers of the replaced kernel report once upgraded in place, as pod annotation
    selvage.dev/fingerprint or as system_fingerprint; such servers count as the candidate's. Absent: no
    upgrade in place is announced."""
    offline: OfflineEvidence
    shadow: ShadowStage = ShadowStage()
    canary: CanaryStage = CanaryStage()
    manual_gates: Annotated[tuple[GatedStage, ...], Field(max_length=3)] = ()
    """Stages entered only with approval in the annotation selvage.dev/approve: STAGE@SUBJECT, comma
    separated."""
    webhooks: Annotated[tuple[Webhook, ...], Field(max_length=8)] = ()
    """External services that are asked or informed, in addition to the manual gates."""
    attempt: PositiveCount = 1
    """Number of the attempt; raise it to start again after a failure or an inconclusive end."""
    rollback: bool | None = None
    """True: withdraw the candidate now; absent: false."""


class KernelPromotion(Document):
    """Promotion of a candidate kernel into a pool."""

    kind: Literal["KernelPromotion"] = "KernelPromotion"
    spec: PromotionSpec
