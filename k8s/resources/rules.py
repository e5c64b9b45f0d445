"""Cross-field rules in CEL, which the API server evaluates, so that ``kubectl apply`` refuses bad documents.

``contracts.rules`` holds all rules and checks a document again when the operator reads it; here are those
that need only the document itself. The tests run both on the same broken documents.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from contracts.documents.drill import GUARD_METRICS
from contracts.documents.trigger import Trigger
from contracts.rules.scenario import MEASURED_KINDS


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule on a resource's ``spec``."""

    cel: str
    message: str
    field: str
    """Path from the spec, for the error."""

    def as_json(self) -> dict[str, str]:
        """The rule as an entry of a structural schema."""
        return {"rule": self.cel, "message": self.message, "fieldPath": f".{self.field}"}


def _once(items: str, key: str) -> str:
    """CEL: no two of ``items`` have the same ``key``."""
    return f"self.{items}.all(a, self.{items}.exists_one(b, b.{key} == a.{key}))"


def _only_block(name: str, key: str, value: str) -> str:
    """CEL: field ``name`` is set exactly if ``key`` is ``value``."""
    return f"has({name}) == ({key} == '{value}')"


def _listed(names: Iterable[str]) -> str:
    """CEL: a list of ``names``."""
    return f"[{', '.join(repr(name) for name in names)}]"


CONTRACT = (
    Rule(_once("slices", "name"), "slices: each name once", "slices"),
    Rule(
        "self.slices.filter(s, s.default).size() == 1",
        "slices: exactly one with default: true; requests with a missing or unknown header go there",
        "slices",
    ),
    Rule(_once("clauses", "id"), "clauses: each id once", "clauses"),
    Rule(
        "self.clauses.all(c, !has(c.slices) || c.slices.all(n, self.slices.exists(s, s.name == n)))",
        "clauses: name slices of this contract",
        "clauses",
    ),
    Rule(
        "self.escalation.guard_threshold < self.escalation.fallback_threshold",
        "escalation: guard comes before fallback; swap or raise fallback_threshold",
        "escalation",
    ),
    Rule(
        "!has(self.assumptions) || self.assumptions.reward_min < self.assumptions.reward_max",
        "assumptions: reward_max lies above reward_min",
        "assumptions",
    ),
)

POOL = (
    Rule(_once("kernels", "name"), "kernels: each name once", "kernels"),
    Rule(
        "self.kernels.filter(k, k.role == 'known_good').size() == 1",
        "kernels: exactly one with role: known_good; it is where a fallback goes",
        "kernels",
    ),
    Rule(
        "self.kernels.all(k, !(has(k.zone) && has(k.zones)))",
        "kernels: zone or zones, not both",
        "kernels",
    ),
    Rule(
        "self.kernels.all(k, !has(k.zones) || k.zones.size() == k.replicas)",
        "kernels: zones name one zone per replica",
        "kernels",
    ),
    Rule(_once("home", "slice"), "home: each slice once", "home"),
    Rule(
        "self.home.all(h, self.kernels.exists(k, k.name == h.kernel && k.role != 'reference'))",
        "home: name a serving kernel of this pool",
        "home",
    ),
    Rule(
        "self.kernels.filter(k, k.role != 'reference').size() <= 15",
        "kernels: an HTTPRoute rule holds 16 backends, one of them for what is shed; split the pool",
        "kernels",
    ),
    Rule(
        "self.kernels.all(k, k.role == 'reference' || has(k.backend))",
        "kernels: in a cluster every serving kernel names its backend (Service and port, or InferencePool)",
        "kernels",
    ),
    Rule(
        "self.kernels.all(k, !has(k.backend) || (k.backend.kind == 'InferencePool') == "
        "(k.backend.group == 'inference.networking.k8s.io'))",
        "kernels: a backend of kind InferencePool has group inference.networking.k8s.io, a Service none",
        "kernels",
    ),
    Rule(
        "self.kernels.all(k, !has(k.backend) || (k.backend.kind == 'Service') == has(k.backend.port))",
        "kernels: a backend of kind Service names its port, an InferencePool none: it has a target port",
        "kernels",
    ),
)

ROUTE = (
    Rule(
        "!(self.policy in ['learned', 'gym']) || has(self.artifact)",
        "artifact: a trained policy (learned, gym) comes as a pinned PolicyArtifact",
        "artifact",
    ),
    Rule(
        "!has(self.freeze) || timestamp(self.freeze.until) <= timestamp('9999-01-01T00:00:00Z')",
        "freeze: until is an instant in UTC, as 2030-01-31T18:00:00Z",
        "freeze",
    ),
    Rule(
        "!has(self.freeze) || !has(self.freeze.table) || self.freeze.table.all(a, "
        "self.freeze.table.exists_one(b, b.slice == a.slice) && "
        "a.weights.map(w, w.weight).sum() > 0.999999 && a.weights.map(w, w.weight).sum() < 1.000001)",
        "freeze: a pinned table names each slice once, with weights that add up to 1",
        "freeze",
    ),
)


def _guards(field: str) -> tuple[Rule, ...]:
    """Rules for the guards in ``field``."""
    return (
        Rule(_once(field, "name"), f"{field}: each name once", field),
        Rule(
            f"self.{field}.all(g, g.metric in {_listed(GUARD_METRICS)})",
            f"{field}: a drill watches {', '.join(GUARD_METRICS)}; name one of these metrics",
            field,
        ),
        Rule(
            f"self.{field}.all(g, g.threshold <= 1.0)",
            f"{field}: a threshold is a share of one, at most 1; write 0.05 for 5 %",
            field,
        ),
    )


def _conditions() -> str:
    """CEL: ``f.trigger`` has at least one condition."""
    flags = [name for name, field in Trigger.model_fields.items() if field.annotation is bool]
    others = [name for name in Trigger.model_fields if name not in flags]
    given = [f"has(f.trigger.{name})" for name in others] + [f"f.trigger.{name}" for name in flags]
    return " || ".join(given)


_SHAPES = tuple(_only_block(f"f.{name}", "f.shape", name) for name in ("ramp", "intermittent", "slow_onset"))
_TRACE = _only_block("self.load.trace_uri", "self.load.arrivals", "trace")

DRILL = (
    Rule(_once("faults", "name"), "faults: each name once", "faults"),
    Rule(
        "self.faults.all(f, f.onset_s < self.time_to_live_s)",
        "faults: each begins before time_to_live_s",
        "faults",
    ),
    Rule(
        "has(self.abort_when) && self.abort_when.size() > 0",
        "abort_when: a drill on a cluster needs at least one guard that ends it",
        "abort_when",
    ),
    *_guards("steady_state"),
    *_guards("abort_when"),
    Rule(
        "self.faults.all(f, !has(f.target.replica) || has(f.target.kernel))",
        "faults: a replica is counted within a kernel; name it",
        "faults",
    ),
    Rule(
        "self.faults.all(f, !(has(f.target.replica) && has(f.target.replica_ratio)))",
        "faults: either one replica or a share of them; leave one of the two away",
        "faults",
    ),
    Rule(
        f"self.faults.all(f, {' && '.join(_SHAPES)})",
        "faults: a shape other than step has the block of its name, and no other one",
        "faults",
    ),
    Rule(
        "self.faults.all(f, f.shape == 'step' || f.shape == 'intermittent')",
        "faults: faults of pods are on or off; choose shape step or intermittent",
        "faults",
    ),
    Rule(
        f"self.faults.all(f, !(f.kind in {_listed(MEASURED_KINDS)}) || has(f.condition) "
        "|| (has(f.live) && has(f.live.mean_kl_nats)))",
        f"faults: {', '.join(MEASURED_KINDS)} name the measured condition, or live.mean_kl_nats",
        "faults",
    ),
    Rule(
        f"self.faults.all(f, !has(f.trigger) || {_conditions()})",
        "faults: a trigger has at least one condition; leave the block away for a fault that always acts",
        "faults",
    ),
    Rule(
        "self.faults.all(f, !has(f.trigger) || !has(f.trigger.prompt_residue) || "
        "f.trigger.prompt_residue.lowest <= f.trigger.prompt_residue.highest && "
        "f.trigger.prompt_residue.highest < f.trigger.prompt_residue.block_tokens)",
        "faults: of a prompt_residue lowest <= highest < block_tokens",
        "faults",
    ),
    Rule(
        f"!has(self.load) || {_TRACE}",
        "load: trace_uri goes with arrivals: trace, and that with trace_uri",
        "load",
    ),
    Rule(
        "!has(self.load) || !has(self.load.slice_mix) || self.load.slice_mix.all(a, "
        "self.load.slice_mix.exists_one(b, b.slice == a.slice)) && "
        "self.load.slice_mix.map(a, a.share).sum() > 0.999999 && "
        "self.load.slice_mix.map(a, a.share).sum() < 1.000001",
        "load: slice_mix names each slice once, with shares that add up to 1",
        "load",
    ),
)

PROMOTION = (
    Rule(
        "has(self.offline.evaluation) != has(self.offline.register_file)",
        "offline: either evaluation or register_file",
        "offline",
    ),
    Rule(
        "!has(self.replaces) || self.replaces != self.candidate",
        "replaces: another kernel than the candidate",
        "replaces",
    ),
    Rule(
        "!has(self.announced_fingerprint) || has(self.replaces)",
        "replaces: the kernel whose servers are upgraded in place, where announced_fingerprint says so",
        "replaces",
    ),
    Rule(
        "self.shadow.stability_s <= self.shadow.deadline_s",
        "shadow: deadline_s is at least stability_s",
        "shadow",
    ),
    Rule(
        "self.canary.stability_s <= self.canary.deadline_s",
        "canary: deadline_s is at least stability_s",
        "canary",
    ),
    Rule(
        "self.canary.guard_ratio <= self.canary.weight_ratio",
        "canary: guard_ratio is at most weight_ratio",
        "canary",
    ),
    Rule(
        "self.manual_gates.all(a, self.manual_gates.exists_one(b, b == a))",
        "manual_gates: each stage once",
        "manual_gates",
    ),
    Rule(_once("webhooks", "name"), "webhooks: each name once", "webhooks"),
    Rule(
        "self.webhooks.all(w, !has(w.stages) || w.stages.all(a, w.stages.exists_one(b, b == a)))",
        "webhooks: each stage once",
        "webhooks",
    ),
    Rule(
        "self.webhooks.all(w, !has(w.stages) || w.kind == 'confirm' || w.kind == 'veto')",
        "webhooks: stages go with confirm and veto; events tell of all of them",
        "webhooks",
    ),
)

#: Rules by kind.
RULES: dict[str, tuple[Rule, ...]] = {
    "KernelContract": CONTRACT,
    "KernelPool": POOL,
    "RoutePolicy": ROUTE,
    "FaultDrill": DRILL,
    "KernelPromotion": PROMOTION,
}
