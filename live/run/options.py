"""What a controller of live servers is asked to do, and the documents that this means."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contracts.documents import KernelContract, KernelPool, RoutePolicy
from contracts.errors import DocumentError, Problem
from contracts.loading.loader import document_sha256, load_as
from contracts.loading.malformed import MALFORMED
from contracts.loading.uris import PACKAGE_PREFIX, resolve_uri
from contracts.telemetry import SampleRates
from live.control.setup import LiveDocuments, LiveSetup, live_setup
from live.measure.prompts import SHIPPED_PROMPTS

_LIBRARY = f"{PACKAGE_PREFIX}contracts/library/"
#: What holds where nobody names another.
CONTRACT, POLICY = _LIBRARY + "serving-pool.yaml", _LIBRARY + "live-route-policy.yaml"
_COMMAND = "selvage run"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """What is asked of every replica, and what that may cost it."""

    prompts: Path = SHIPPED_PROMPTS
    per_slice: int = 12
    tokens_per_s: float = 64.0  # and replica, prompt tokens
    limit_s: float = 2.0
    generation_tokens_per_s: float = 32.0  # and replica, where the contract asks for generations
    long_limit_s: float = 60.0
    long_tokens: int = 2048  # of a long decode, at most
    reference_url: str = ""  # who answers what is right; empty: the reference kernel, else the known-good one
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnOptions:
    """How replicas come back from quarantine. verify_probes 0: unverified and whole at once."""

    verify_probes: int = 32
    readmit_over_s: float = 60.0
    restart: bool = False  # first, which empties caches as well; of servers that we started


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to run. policy, contract: URIs, empty: the shipped ones. model: name that servers know, empty:
    their first. scrape_s: between two scrapes of one server, about. sampled_port: where log-probabilities of
    users' answers may be posted, 0: any free one; None: nobody may.
    """

    policy: str = ""
    contract: str = ""
    observe: bool = False
    model: str = ""
    api_key: str = field(default="", repr=False)
    ca_file: Path | None = None
    probes: ProbeOptions = field(default_factory=ProbeOptions)
    returns: ReturnOptions = field(default_factory=ReturnOptions)
    scrape_s: float = 1.0
    sampled_port: int | None = None


def documents_for(pool: KernelPool, pool_file: Path, options: RunOptions) -> LiveDocuments:
    """The documents that ``options`` name for ``pool``.

    A policy that is named must be of this pool and contract; the shipped one takes any.
    """
    contract_file = resolve_uri(options.contract or CONTRACT, _COMMAND)
    contract = load_as(KernelContract, contract_file)
    policy_file = resolve_uri(options.policy or POLICY, _COMMAND)
    policy = load_as(RoutePolicy, policy_file)
    changes: dict[str, Any] = {"mode": "observe"} if options.observe else {}
    if not options.policy:
        changes |= {"pool": pool.metadata.name, "contract": contract.metadata.name}
    elif policy.spec.pool != pool.metadata.name:
        problem = Problem(
            str(policy_file), 0, "spec.pool", pool.metadata.name, policy.spec.pool, "name the pool that runs"
        )
        raise DocumentError([problem])
    policy = policy.model_copy(update={"spec": policy.spec.model_copy(update=changes)})
    return LiveDocuments(
        pool=pool, pool_file=pool_file, contract=contract, policy=policy, policy_file=policy_file
    )


def recipe(
    documents: LiveDocuments, options: RunOptions, replicas: dict[str, tuple[str, ...]], rates: SampleRates
) -> dict[str, Any]:
    """Plain values from which ``setup_again`` makes the same set-up: files by absolute path, pinned."""
    return {
        "pool": str(documents.pool_file.absolute()),
        "pool_sha256": document_sha256(documents.pool),
        "contract": str(resolve_uri(options.contract or CONTRACT, _COMMAND).absolute()),
        "contract_sha256": document_sha256(documents.contract),
        "policy": str(documents.policy_file.absolute()) if options.policy else "",
        "policy_sha256": document_sha256(documents.policy),
        "observe": options.observe,
        "replicas": {name: list(own) for name, own in replicas.items()},
        "probes_per_s": rates.probes_per_s,
        "scrape_interval_s": rates.scrape_interval_s,
    }


def setup_again(told: dict[str, Any], policy: str = "", contract: str = "") -> LiveSetup:
    """The set-up of a decision log's recipe, or with another ``policy`` or ``contract`` (URIs).

    Raises DocumentError where a document is gone or is not the one that the log was written under.
    """
    _refuse_other_recipe(told)
    pool_file = Path(told["pool"])
    pool = load_as(KernelPool, pool_file)
    options = RunOptions(
        policy=str(Path(policy).absolute()) if policy and ":" not in policy else policy or told["policy"],
        contract=str(Path(contract).absolute())
        if contract and ":" not in contract
        else contract or told["contract"],
        observe=bool(told["observe"]),
    )
    documents = documents_for(pool, pool_file, options)
    _unchanged("pool", document_sha256(pool), told, pool_file)
    if not policy and not contract:
        _unchanged("contract", document_sha256(documents.contract), told, Path(options.contract))
        _unchanged("policy", document_sha256(documents.policy), told, documents.policy_file)
    rates = SampleRates(
        probes_per_s=float(told["probes_per_s"]), scrape_interval_s=float(told["scrape_interval_s"])
    )
    return live_setup(documents, {name: tuple(own) for name, own in told["replicas"].items()}, rates)


_TEXTS = ("pool", "pool_sha256", "contract", "contract_sha256", "policy", "policy_sha256")


def _refuse_other_recipe(told: Any) -> None:
    """DocumentError where a log's first line does not say how its set-up is made."""
    try:
        found = [told[name] for name in _TEXTS]
        _ = [tuple(map(str, own)) for own in told["replicas"].values()], bool(told["observe"])
        sound = all(isinstance(one, str) for one in found)
        sound &= all(math.isfinite(float(told[name])) for name in ("probes_per_s", "scrape_interval_s"))
        actual = "values of another kind"
    except MALFORMED as error:
        sound, actual = False, f"{error!r}"[:200]
    if not sound:
        hint = "give what `selvage run` wrote"
        raise DocumentError([Problem(_COMMAND, 0, "documents", "how a set-up is made", actual, hint)])


def _unchanged(what: str, found: str, told: dict[str, Any], file: Path) -> None:
    if found != told[f"{what}_sha256"]:
        expected = f"the {what} of the log, sha256 {told[f'{what}_sha256'][:12]}…"
        hint = "restore the document that the log was written under"
        raise DocumentError([Problem(str(file), 0, "", expected, f"{found[:12]}…", hint)])
