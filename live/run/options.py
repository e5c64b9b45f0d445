"""Options of a controller of live servers, and the documents that they refer to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contracts.documents import KernelContract, KernelPool, MetaContract, RoutePolicy
from contracts.documents.drill import Undo
from contracts.errors import refusal
from contracts.loading.loader import document_sha256, load_as
from contracts.loading.shipped import LIBRARY, SERVING_POOL
from contracts.loading.untrusted import MALFORMED
from contracts.loading.uris import resolve_uri
from contracts.telemetry import SampleRates
from live.control.setup import LiveDocuments, LiveSetup, live_setup
from live.measure.prompts import SHIPPED_PROMPTS

#: Defaults of contract and policy.
CONTRACT, POLICY = SERVING_POOL, LIBRARY + "live-route-policy.yaml"
_COMMAND = "selvage run"
_UNSAID = Undo()  # the defaults of a drill's undo


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """What is probed on every replica, and the cost limits."""

    prompts: Path = SHIPPED_PROMPTS
    per_slice: int = 12
    tokens_per_s: float = 64.0  # prompt tokens, per replica
    limit_s: float = 2.0
    generation_tokens_per_s: float = 32.0  # per replica, if the contract needs generation probes
    long_limit_s: float = 60.0
    long_tokens: int = 2048  # upper limit for a long decode
    reference_url: str = ""  # server with the right answers; empty: reference kernel, else known-good kernel
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnOptions:
    """How replicas return from quarantine. verify_probes 0: unverified, with full traffic at once."""

    verify_probes: int = _UNSAID.verify_probes
    readmit_over_s: float = _UNSAID.readmit_over_s
    restart: bool = (
        False  # always first, not only where a cache cannot be flushed; of servers that we started
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to run.

    policy, contract: URIs; "": the shipped ones. meta: URI of a meta-contract that replaces the policy
    document's; "": that one. model: name that the servers use; "": their first. key_file: file that api_key
    was read from, read again when it changes. scrape_s: approximate interval of scrapes of one server;
    scrape_timeout_s: most time of one scrape.
    sampled_port: port for log-probabilities of users' answers; 0: any free one; None: not accepted.
    """

    policy: str = ""
    contract: str = ""
    meta: str = ""
    observe: bool = False
    model: str = ""
    api_key: str = field(default="", repr=False)
    key_file: Path | None = None
    ca_file: Path | None = None
    probes: ProbeOptions = field(default_factory=ProbeOptions)
    returns: ReturnOptions = field(default_factory=ReturnOptions)
    scrape_s: float = 1.0
    scrape_timeout_s: float = 1.0
    sampled_port: int | None = None


def documents_for(
    pool: KernelPool, pool_file: Path, options: RunOptions, *, what_if: bool = False
) -> LiveDocuments:
    """The documents that ``options`` name for ``pool``.

    A named policy must be of this pool and contract. It must pin no other meta-contract than the named one,
    unless this is a ``what_if``. The shipped policy fits every pool. A pool with its own slices needs a named
    contract.
    """
    contract_file = resolve_uri(options.contract or CONTRACT, _COMMAND)
    contract = load_as(KernelContract, contract_file)
    if not options.contract:
        _refuse_other_slices(pool, pool_file, contract)
    policy_file = resolve_uri(options.policy or POLICY, _COMMAND)
    policy = load_as(RoutePolicy, policy_file)
    changes: dict[str, Any] = {"mode": "observe"} if options.observe else {}
    if not options.policy:
        changes |= {"pool": pool.metadata.name, "contract": contract.metadata.name}
    elif policy.spec.pool != pool.metadata.name:
        raise refusal(
            policy_file, pool.metadata.name, policy.spec.pool, "name the pool that runs", path="spec.pool"
        )
    changes |= _meta_changes(options.meta, policy, policy_file, what_if=what_if)
    policy = policy.model_copy(update={"spec": policy.spec.model_copy(update=changes)})
    return LiveDocuments(
        pool=pool, pool_file=pool_file, contract=contract, policy=policy, policy_file=policy_file
    )


def _refuse_other_slices(pool: KernelPool, pool_file: Path, shipped: KernelContract) -> None:
    """DocumentError if ``pool`` has slices that the ``shipped`` contract does not know."""
    known = [one.name for one in shipped.spec.slices]
    own = [home.slice for home in pool.spec.home if home.slice not in known]
    if own:
        expected = f"slices of the shipped contract {shipped.metadata.name}: {', '.join(known)}"
        hint = "name the contract of these slices: --contract FILE"
        raise refusal(pool_file, expected, ", ".join(own), hint, path="spec.home")


def _meta_changes(uri: str, policy: RoutePolicy, policy_file: Path, *, what_if: bool) -> dict[str, str]:
    """The changes to ``policy`` that name and pin the meta-contract at ``uri``; none for "".

    Raises DocumentError if the document pins another one and this is no ``what_if``.
    """
    if not uri:
        return {}
    file = resolve_uri(uri, _COMMAND)
    found, pinned = document_sha256(load_as(MetaContract, file)), policy.spec.meta_contract_sha256
    if pinned not in (None, found) and not what_if:
        hint = "leave --meta out, or pin it: selvage policy route ARTEFACT SCENARIO --meta"
        path, actual = "spec.meta_contract_sha256", f"{pinned}, of {policy.spec.meta_contract}"
        raise refusal(policy_file, f"{found}, of --meta {uri}", actual, hint, path=path)
    return {"meta_contract": str(file.absolute()), "meta_contract_sha256": found}


def recipe(
    documents: LiveDocuments, options: RunOptions, replicas: dict[str, tuple[str, ...]], rates: SampleRates
) -> dict[str, Any]:
    """Plain values from which ``setup_again`` rebuilds the same set-up: files by absolute path, pinned."""
    return {
        "pool": str(documents.pool_file.absolute()),
        "pool_sha256": document_sha256(documents.pool),
        "contract": str(resolve_uri(options.contract or CONTRACT, _COMMAND).absolute()),
        "contract_sha256": document_sha256(documents.contract),
        "policy": str(documents.policy_file.absolute()) if options.policy else "",
        "policy_sha256": document_sha256(documents.policy),
        "meta": str(resolve_uri(options.meta, _COMMAND).absolute()) if options.meta else "",
        "meta_sha256": documents.policy.spec.meta_contract_sha256 if options.meta else "",
        "observe": options.observe,
        "replicas": {name: list(own) for name, own in replicas.items()},
        "probes_per_s": rates.probes_per_s,
        "scrape_interval_s": rates.scrape_interval_s,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherDocuments:
    """Documents with which a replay replaces the log's own, by URI; "": not replaced. A policy includes its
    meta-contract.
    """

    policy: str = ""
    contract: str = ""
    meta: str = ""

    def __bool__(self) -> bool:
        return bool(self.policy or self.contract or self.meta)


def setup_again(told: dict[str, Any], other: OtherDocuments | None = None) -> LiveSetup:
    """The set-up from a decision log's recipe, or with ``other`` documents.

    Raises DocumentError if a document is missing or is not the one that the log was written under.
    """
    _refuse_other_recipe(told)
    named = other or OtherDocuments()
    pool_file = Path(told["pool"])
    pool = load_as(KernelPool, pool_file)
    options = RunOptions(
        policy=_absolute(named.policy) or told["policy"],
        contract=_absolute(named.contract) or told["contract"],
        meta=_absolute(named.meta) or ("" if named.policy else told.get("meta", "")),
        observe=bool(told["observe"]),
    )
    documents = documents_for(pool, pool_file, options, what_if=bool(named))
    _unchanged("pool", document_sha256(pool), told, pool_file)
    if not named:
        _unchanged("contract", document_sha256(documents.contract), told, Path(options.contract))
        if options.meta:
            _unchanged("meta", str(documents.policy.spec.meta_contract_sha256), told, Path(options.meta))
        _unchanged("policy", document_sha256(documents.policy), told, documents.policy_file)
    rates = SampleRates(
        probes_per_s=float(told["probes_per_s"]), scrape_interval_s=float(told["scrape_interval_s"])
    )
    return live_setup(documents, {name: tuple(own) for name, own in told["replicas"].items()}, rates)


def _absolute(uri: str) -> str:
    return str(Path(uri).absolute()) if uri and ":" not in uri else uri


_TEXTS = ("pool", "pool_sha256", "contract", "contract_sha256", "policy", "policy_sha256")
_LATER_TEXTS = ("meta", "meta_sha256")  # logs of earlier versions have none


def _refuse_other_recipe(told: Any) -> None:
    """DocumentError if a log's first line does not describe its set-up."""
    try:
        found = [*(told[name] for name in _TEXTS), *(told.get(name, "") for name in _LATER_TEXTS)]
        _ = [tuple(map(str, own)) for own in told["replicas"].values()], bool(told["observe"])
        sound = all(isinstance(one, str) for one in found)
        sound &= all(math.isfinite(float(told[name])) for name in ("probes_per_s", "scrape_interval_s"))
        actual = "values of another kind"
    except MALFORMED as error:
        sound, actual = False, f"{error!r}"[:200]
    if not sound:
        hint = "give what `selvage run` wrote"
        raise refusal(_COMMAND, "how a set-up is made", actual, hint, path="documents")


def _unchanged(what: str, found: str, told: dict[str, Any], file: Path) -> None:
    if found != told[f"{what}_sha256"]:
        expected = f"the {what} of the log, sha256 {told[f'{what}_sha256'][:12]}…"
        hint = "restore the document that the log was written under"
        raise refusal(file, expected, f"{found[:12]}…", hint)
