"""The configurations of E5: a policy with its settings, and the alarm confidence under which the contract is
judged.

Text form ``policy[:key=number,...][@confidence]``, e.g. ``hysteresis:dwell_s=120@0.99``. Without ``@`` the
contract's own confidence holds. In a list of configurations ``tuned`` stands for every tuned baseline. A
configuration may also be what a ``RoutePolicy`` document names.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from contracts.documents import RoutePolicy
from contracts.errors import DocumentError, refusal
from contracts.loading.loader import load_as, read_text
from contracts.loading.shipped import LIBRARY
from contracts.loading.uris import resolve_uri
from controller.decision import Decision
from controller.fleet import FleetSetup
from controller.options import ControllerSetup
from policies.kinds import POLICIES
from policies.registry import configuration_sha256, make_configuration, make_policy
from policies.rules.informed import Notices
from policies.spec import parse_spec
from policies.supervised import load_meta, meta_sha256, refuse_other_artefact, supervised_by_uri
from scripts.e5.known_faults import known_faults
from scripts.e5.route import read_route
from simulator.drive import ControllerDriver
from simulator.world.compiled_scenario import CompiledScenario

#: The configuration whose healthy rows are the quality baseline; it always runs.
BASELINE_CONFIGURATION = "fixed-bare"
#: Name that stands for every tuned baseline in a list of configurations, and the folder of their settings.
TUNED, TUNING = "tuned", f"{LIBRARY}tuning"
#: The configuration that is given the faults.
INFORMED = "informed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One policy configuration of E5.

    name: as in results; spec: the policy with its settings, as text; alarm_confidence: of the window
    detector, None for the contract's; route: URI of the RoutePolicy document whose shield, meta-contract and
    mode apply, "" for none; meta: URI of the MetaContract under which it runs, "" for no supervision.
    """

    name: str
    spec: str
    alarm_confidence: float | None = None
    route: str = ""
    meta: str = ""

    @property
    def policy(self) -> str:
        """Name of the policy, without settings; of a configuration from a document its own name."""
        return self.name if self.route else parse_spec(self.spec)[0]

    @property
    def setting(self) -> str:
        """What is set differently from the policy's defaults."""
        return self.name.removeprefix(self.policy)

    def setup(self, scenario: CompiledScenario) -> ControllerSetup:
        """Controller set-up of this configuration for ``scenario``; only the informed reference is given the
        faults.
        """
        if self.route:
            return read_route(self.route, scenario).setup
        fleet = scenario.setup
        if self.alarm_confidence is not None:
            contract = replace(fleet.contract, alarm_confidence=self.alarm_confidence)
            fleet = replace(fleet, contract=contract)
        found = make_configuration(self.spec, fleet, notices=notices_for(self.policy, scenario))
        return supervised_by_uri(self.meta, self.spec, found, "selvage")

    def driver(
        self, scenario: CompiledScenario, watch: Callable[[Decision], None] | None = None
    ) -> ControllerDriver:
        """Driver of this configuration for ``scenario``; ``watch`` is called with every decision."""
        if self.route:
            return read_route(self.route, scenario).driver(self.name, watch)
        return ControllerDriver(self.setup(scenario), name=self.name, watch=watch)

    def check(self, fleet: FleetSetup) -> None:
        """Refuse a setting that the policy does not know, and a meta-contract that is not that of its
        artefact, before anything runs.
        """
        try:
            make_policy(self.spec, fleet)
        except ValueError as error:
            raise configuration_refusal(self.name, "settings of the policy", str(error)) from None
        if self.meta:
            refuse_other_artefact(self.spec, load_meta(self.meta, "selvage")[0], self.meta)


def notices_for(policy: str, scenario: CompiledScenario) -> Notices | None:
    """Faults given to ``policy`` in ``scenario``: none, unless it is the informed reference."""
    return known_faults(scenario) if policy == INFORMED else None


def parse_configuration(text: str, meta: str = "") -> Configuration:
    """The configuration that ``text`` names under ``meta``; DocumentError for an unknown policy or a
    malformed setting.

    The baseline configuration has no lever, so it runs under no meta-contract.
    """
    spec, at, confidence = text.partition("@")
    try:
        name, _ = parse_spec(spec)
        level = float(confidence) if at else None
    except ValueError as error:
        raise configuration_refusal(text, "policy[:key=number,...][@confidence]", str(error)) from None
    if name not in POLICIES:
        raise configuration_refusal(text, f"one of {', '.join(POLICIES.known())}", repr(name))
    if level is not None and not 0.5 < level < 1.0:
        raise configuration_refusal(text, "a confidence between 0.5 and 1", confidence)
    kept = "" if name == BASELINE_CONFIGURATION else meta
    return Configuration(name=_readable(text), spec=spec, alarm_confidence=level, meta=kept)


def _readable(text: str) -> str:
    """``text`` with files by their names alone, as tables show it."""
    return re.sub(r"=[^,@]*/([^/,@]+)", r"=\1", text)


def parse_configurations(texts: Iterable[str], meta: str = "") -> tuple[Configuration, ...]:
    """Configurations under ``meta`` in the given order, each once, the baseline configuration first if it is
    not named; ``TUNED`` is several.
    """
    given = [text.strip() for text in texts if text.strip()]
    names = list(dict.fromkeys(name for text in given for name in (tuned() if text == TUNED else [text])))
    if not names:
        raise configuration_refusal("", f"one or more of {', '.join(POLICIES.known())}", "none")
    with_baseline = names if BASELINE_CONFIGURATION in names else [BASELINE_CONFIGURATION, *names]
    found = [parse_configuration(name, meta) for name in with_baseline]
    shown = Counter(one.name for one in found)
    return tuple(
        one if shown[one.name] == 1 else replace(one, name=text)
        for one, text in zip(found, with_baseline, strict=True)
    )


def route_configuration(uri: str) -> Configuration:
    """The configuration that the RoutePolicy document ``uri`` names, as ``route-policy-NAME``.

    Raises DocumentError where it is none.
    """
    document = load_as(RoutePolicy, resolve_uri(uri, "selvage e5"))
    return Configuration(name=f"route-policy-{document.metadata.name}", spec=document.spec.policy, route=uri)


def tuned() -> list[str]:
    """The shipped settings that ``selvage tune`` chose, by name of the file."""
    files = sorted(resolve_uri(f"{TUNING}/hysteresis.json", "selvage e5").parent.glob("*.json"))
    return [str(json.loads(read_text(file))["chosen"]) for file in files]


def configuration_refusal(text: str, expected: str, actual: str) -> DocumentError:
    """An error about one configuration given on the command line or in the suite."""
    return refusal(
        "selvage e5",
        expected,
        actual,
        "e.g. --policies fixed,threshold,hysteresis",
        path=f"policy {text!r}" if text else "--policies",
    )


def configuration_key(configuration: Configuration) -> list[object]:
    """All facts that decide in ``configuration``, including the content of its files."""
    name, confidence = configuration.name, configuration.alarm_confidence
    return [name, confidence, configuration_sha256(configuration.spec), meta_sha256(configuration.meta)]
