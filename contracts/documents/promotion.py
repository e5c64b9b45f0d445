"""``KernelPromotion``: how a candidate kernel of a pool is let in, stage by stage, and on what evidence."""

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

#: No user and password, no fragment, no space and no control character.
HookUrl = Annotated[
    str,
    Field(
        pattern=r"^https?://[A-Za-z0-9.\[\]:_-]+(/[A-Za-z0-9._~%!$&'()*+,;=:@/?-]*)?$",
        max_length=1000,
    ),
]

Share = Annotated[float, Field(gt=0.0, le=0.5)]


class OfflineEvidence(Strict):
    """What was measured before the candidate met any request: exactly one of the two."""

    evaluation: FileRef | None = None
    """Output of `selvage contract evaluate --json` on the candidate's profile: a path, a ``package:`` URI or
    ``configmap:NAME/KEY``, pinned by its content. It is judged again from the profile's samples."""
    register_file: FileRef | None = None
    """A register of `selvage contract register`, pinned likewise; its newest entry on this build and contract
    decides."""
    checkpoint_sha256: Sha256 | None = None
    """Weights that the register's entry must be about; absent: any."""


class StageSpec(Strict):
    """What a stage asks for; counts are of the window of compliance."""

    stability_s: Positive
    """Judged time without a clause of L2 or L3 in alarm, before the next stage."""
    least_probes: Count
    """Answered probes on every slice in that window."""
    least_answers: Count = 0
    """Requests that the candidate's servers finished in that window."""
    deadline_s: Positive
    """Judged time in the stage after which it is inconclusive."""


class ShadowStage(StageSpec):
    """Requests are mirrored to the candidate, and its answers are dropped."""

    stability_s: Positive = 600.0
    """Judged seconds without a clause of L2 or L3 in alarm, before Canary."""
    least_probes: Count = 100
    """Answered probes on every slice in that window."""
    deadline_s: Positive = 7200.0
    """Judged seconds in Shadow after which it is inconclusive."""
    mirror_ratio: Share = 0.05
    """Share of every slice's requests that is mirrored."""


class CanaryStage(StageSpec):
    """A bounded share of every slice."""

    stability_s: Positive = 3600.0
    """Judged seconds without a clause of L2 or L3 in alarm, before Full."""
    least_probes: Count = 300
    """Answered probes on every slice in that window."""
    deadline_s: Positive = 21600.0
    """Judged seconds in Canary after which it is inconclusive."""
    weight_ratio: Share = 0.05
    """Largest weight of the candidate on a slice."""
    guard_ratio: Annotated[float, Field(ge=0.0, le=0.5)] = 0.01
    """The same while a clause of L2 is in alarm."""


class Webhook(Strict):
    """An external service that is asked, or informed, by an HTTP POST with a JSON body."""

    name: DnsName
    """Its own among the webhooks of this promotion."""
    kind: HookKind
    """confirm: a stage is entered only while the last answer is 2xx. veto: 403 or 409 rolls back, 2xx is no
    objection, and with any other answer the next stage is not entered. event: told of every change of stage
    and verdict. rollback: told when the candidate was rolled back."""
    url: HookUrl
    """http or https, of an origin that the operator was started with (--webhook-origin), without user,
    password and fragment."""
    stages: Annotated[tuple[GatedStage, ...], Field(min_length=1, max_length=3)] | None = None
    """Of confirm the stages that it opens, of veto those in which it is asked; absent: all of them."""
    timeout_s: Annotated[float, Field(gt=0.0, le=30.0)] = 5.0
    """Longest time of a call, to the end of the answer."""
    every_s: Annotated[float, Field(ge=1.0, le=3600.0)] = 10.0
    """How often confirm and veto are asked, and after how long a failed event is told again."""


class PromotionSpec(Strict):
    """One candidate on its way."""

    description: Text
    """What the candidate is, for people."""
    policy: DnsName
    """The RoutePolicy whose route, pool and contract it is about."""
    candidate: Name
    """A kernel of the pool, of role candidate or serving."""
    replaces: Name | None = None
    """A kernel of the pool whose slices come home to the candidate once it is full; absent: homes stay."""
    announced_fingerprint: Annotated[str, Field(min_length=1, max_length=400)] | None = None
    """What servers of the kernel that is replaced state once they are upgraded in place, as annotation
    selvage.dev/fingerprint of their pods or as system_fingerprint: such servers are the candidate's.
    Absent: no upgrade in place is announced."""
    offline: OfflineEvidence
    shadow: ShadowStage = ShadowStage()
    canary: CanaryStage = CanaryStage()
    manual_gates: Annotated[tuple[GatedStage, ...], Field(max_length=3)] = ()
    """Stages entered only with the annotation selvage.dev/approve: STAGE@SUBJECT, comma separated."""
    webhooks: Annotated[tuple[Webhook, ...], Field(max_length=8)] = ()
    """Services that are asked or informed, beside the manual gates."""
    attempt: PositiveCount = 1
    """Raise it to begin again after a failure or an inconclusive end."""
    rollback: bool | None = None
    """True: withdraw the candidate now; absent: false."""


class KernelPromotion(Document):
    """A candidate kernel on its way into a pool."""

    kind: Literal["KernelPromotion"] = "KernelPromotion"
    spec: PromotionSpec
