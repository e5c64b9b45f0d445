"""Golden probes of one pool's pods: the reference is asked beside the tick, then pods within the budget.

``live.probe`` sends and judges probes; this module chooses their targets. Nothing is probed until the
reference has answered, and ``problem`` says why. Afterwards the reference also generates the answers with
which pods returning from quarantine are verified. A replacement pod is probed at its own address; late
answers of its predecessor are not counted for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from contracts.errors import MeasurementError
from contracts.telemetry import ProbeSamples, ReplicaState, SampleRates
from controller.fleet import USUAL_RATES
from k8s.operator.objects import ClusterError
from k8s.operator.telemetry.pool_reader import Sensing
from k8s.operator.telemetry.verifying import AGAIN_S, ReferenceVerifier
from live.control.loop import error_line
from live.control.source import nothing_probed
from live.measure.endpoint import Endpoint
from live.measure.prompts import Prompt, load_prompts
from live.probe.prober import ProbePlan, Prober
from live.run.generation import generation_columns, generation_plans
from live.run.options import ProbeOptions, ReturnOptions
from live.run.probing import chosen_prompts, first_model, probe_plan
from live.run.readmission import ReferenceSource

#: Approximate characters per token, for prompts without token ids; only used to estimate the probe rate.
_TOKEN_CHARACTERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to call servers. model: served model name; empty: the first that the server lists. key_file: file
    with the API key, read again when it changes.
    """

    api_key: str = field(default="", repr=False)
    ca_file: Path | None = None
    model: str = ""
    key_file: Path | None = None

    def endpoint(self, url: str, model: str = "") -> Endpoint:
        """The server at ``url``."""
        return Endpoint(
            url=url,
            model=model or self.model,
            api_key=self.api_key,
            ca_file=self.ca_file,
            key_file=self.key_file,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """Settings of probing. references: folder in which the reference's answers are stored, by pool."""

    options: ProbeOptions
    references: Path
    access: Access
    returns: ReturnOptions = field(default_factory=ReturnOptions)
    """How pods return from quarantine."""
    flush_first: bool = False
    """Whether a pod stays out of rotation until its prefix cache was flushed or its process was restarted."""

    def slices(self, wanted: Iterable[str]) -> list[str]:
        """The slices in ``wanted`` that have golden prompts."""
        known = {one.slice for one in load_prompts(self.options.prompts) if one.split == "probe"}
        return [name for name in wanted if name in known]


def probe_rates(probing: Probing | None, slices: Iterable[str], scrape_s: float) -> SampleRates:
    """How often a pod is probed and scraped; ``scrape_s``: seconds between two scrapes."""
    probed = [] if probing is None else probing.slices(slices)
    if probing is None or not probed:
        return SampleRates(probes_per_s=USUAL_RATES.probes_per_s, scrape_interval_s=scrape_s)
    prompts = chosen_prompts(probing.options, probed)
    tokens = sum(_tokens(one) for one in prompts) / len(prompts)
    return SampleRates(probes_per_s=probing.options.tokens_per_s / tokens, scrape_interval_s=scrape_s)


def _tokens(prompt: Prompt) -> int:
    return len(prompt.token_ids) or max(2, len(prompt.text) // _TOKEN_CHARACTERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The served model name, the probes to send, and why some are missing ("" for none)."""

    model: str
    probes: ProbePlan
    problem: str


class ClusterProber:
    """``live.control.source.ProbeStep`` for one pool. Call ``close`` at the end."""

    def __init__(self, probing: Probing, sensing: Sensing) -> None:
        self._probing, self._sensing = probing, sensing
        self._layout = sensing.setup.layout
        self._slices = probing.slices(self._layout.slices)
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="reference")
        self._asked: Future[_Plan] | None = None
        self._again_at_s = float("-inf")
        self._prober: Prober | None = None
        self._plan_known: ProbePlan | None = None
        self._model = ""
        self.verifier: ReferenceVerifier | None = None
        """Verifies returning pods; None: they return unverified, by option or for lack of prompts."""
        if probing.returns.verify_probes and self._slices:
            self.verifier = ReferenceVerifier(probing.returns, sensing, unflushed=not probing.flush_first)
        self.problem = "" if self._slices else self._unprobed()

    @property
    def stated(self) -> dict[str, str]:
        """Replica -> fingerprint stated in its latest answer."""
        return {} if self._prober is None else self._prober.stated

    @property
    def sent_tokens(self) -> dict[str, int]:
        """Replica -> prompt tokens sent so far."""
        return {} if self._prober is None else self._prober.sent_tokens

    def close(self) -> None:
        """Send no more probes; probes in flight are cut off."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self.verifier is not None:
            self.verifier.close()
        if self._prober is not None:
            self._prober.close(wait=False)

    def step(self, now_s: float) -> ProbeSamples:
        """Send due probes to the pods that are ready; returns the results since the last call."""
        if self._prober is None:
            self._prepare(now_s)
        if self._prober is None:
            if self.verifier is not None:
                self.verifier.unverified = self.problem
            return nothing_probed(self._layout)
        if self.verifier is not None:
            self.verifier.turn(now_s, self._source, self._probing.options)
        ready = (one for one in self._sensing.discovery.replicas() if one.state == ReplicaState.READY)
        self._prober.aim({one.name: one.url for one in ready})
        return self._prober.step(now_s)

    def _prepare(self, now_s: float) -> None:
        """Ask the reference if that is due; start probing once it has answered."""
        if self._asked is None:
            if now_s >= self._again_at_s and self._slices:
                self._ask(now_s)
            return
        if not self._asked.done():
            return
        asked, self._asked = self._asked, None
        try:
            found = asked.result()
        except Exception as error:  # whatever a server answers, the loop goes on
            self.problem = f"nothing is probed: {error_line(error)}"
            return
        model, plan = found.model, found.probes
        client = self._probing.access.endpoint("http://pods", model).client()
        nowhere = dict.fromkeys(self._layout.replicas, "")
        self._prober = Prober(self._layout, plan, nowhere, model, now_s, client)
        self._threads.shutdown(wait=False)
        self.problem = "; ".join(filter(None, (self._unprobed(), found.problem)))
        self._plan_known, self._model = plan, model
        if self.verifier is not None:
            self.verifier.unverified = ""
            self.verifier.serve(client, model)

    def _unprobed(self) -> str:
        lacking = [name for name in self._layout.slices if name not in self._slices]
        return f"no golden prompts of {', '.join(lacking)}: give them by --prompts" if lacking else ""

    def _ask(self, now_s: float) -> None:
        self._again_at_s = now_s + AGAIN_S
        try:
            kernel, url = self._trusted()
        except ClusterError as error:
            self.problem = f"nothing is probed: {error}"
            return
        self._asked = self._threads.submit(self._plan, kernel, url)

    def _plan(self, kernel: str, url: str) -> _Plan:
        """The probes to send, with the answers of ``kernel``'s server as reference; includes generation
        probes if the contract needs them.

        If the reference provides no generations to compare with, the other probes remain. Raises what
        ``probe_plan`` raises, and httpx errors.
        """
        access, options, store = self._probing.access, self._probing.options, self._store()
        model = access.model or first_model(access.endpoint(url))
        endpoint = access.endpoint(url, model)
        plan, problem = probe_plan(options, self._slices, endpoint, store, kernel), ""
        asked = generation_columns(self._sensing.documents.contract)
        try:
            generation = generation_plans(options, asked, plan.prompts, endpoint, store, kernel)
        except MeasurementError as error:
            generation, problem = (), f"no generation is probed, which clauses ask for: {error_line(error)}"
        return _Plan(model=model, probes=replace(plan, generation=generation), problem=problem)

    def _store(self) -> Path:
        return self._probing.references / self._sensing.documents.pool.metadata.name

    def _source(self) -> ReferenceSource | None:
        """The server that provides reference generations; None while none is ready, and the verifier says
        why.
        """
        assert self._plan_known is not None  # set before the first probe
        assert self.verifier is not None  # the only caller
        try:
            kernel, url = self._trusted()
        except ClusterError as error:
            self.verifier.unverified = str(error)
            return None
        self.verifier.unverified = ""
        endpoint, prompts = self._probing.access.endpoint(url, self._model), self._plan_known.prompts
        return ReferenceSource(prompts=prompts, endpoint=endpoint, store=self._store(), kernel=kernel)

    def _trusted(self) -> tuple[str, str]:
        """Kernel and URL of the trusted server: the reference kernel if the pool has one that runs on the
        cluster, else the known-good kernel. Raises ClusterError while none of its pods is ready.
        """
        order = {"reference": 0, "known_good": 1}
        kernels = [one for one in self._sensing.documents.pool.spec.kernels if one.role in order]
        kernels = sorted((one for one in kernels if one.backend is not None), key=lambda one: order[one.role])
        kernel = kernels[0]
        assert kernel.backend is not None
        url = self._probing.options.reference_url or self._sensing.discovery.ready_url(kernel.backend)
        if not url:
            raise ClusterError(f"no pod of {kernel.name}, which says what is right, is ready")
        return kernel.name, url
