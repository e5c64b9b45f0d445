"""``selvage simulate``: run one scenario on the simulated fleet under one policy.

Same scenario, policy and seeds give the same bytes on stdout. With ``--out`` the decision log is
written as well, one line per tick and seed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from contracts.documents import Scenario
from contracts.errors import refusal
from contracts.loading.files import json_text
from contracts.loading.loader import document_sha256, load_as
from contracts.loading.uris import resolve_uri
from contracts.scoring.episode import EpisodeRecord
from contracts.scoring.incident_measures import measure_incident
from controller.decision import Decision
from controller.explain.tick import explain, record_json
from controller.options import ControllerSetup
from controller.state import ControllerState
from policies.registry import configuration_sha256, make_configuration
from policies.spec import parse_spec
from policies.supervised import meta_sha256, supervised_by_uri
from scripts.cli.options import LARGEST_SEED, MOST_SEEDS, options
from scripts.cli.run_reports.simulate_summary import print_table, seed_count_text, summarise
from scripts.e5.configurations import notices_for
from scripts.e5.route import ObservingDriver, RouteSetup, load_route
from scripts.guard import on_interrupt
from scripts.output import ready_folder, write_json, write_whole
from scripts.progress import compiling_aside, show_progress
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.at_rest import CONSEQUENCE
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import compile_scenario, load_scenario, with_trace


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(options(SimulateOptions)(simulate))


#: The policy if none is named.
DEFAULT = "hysteresis"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """The options of ``selvage simulate``."""

    scenario: Annotated[str, typer.Argument(help="Scenario document; package:... for shipped ones.")]
    policy: Annotated[str, typer.Option(help=f"name or name:key=value,...; default: {DEFAULT}.")] = ""
    seeds: Annotated[
        int, typer.Option(min=1, max=MOST_SEEDS, help="Number of seeds, from --first-seed on.")
    ] = 1
    first_seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="First seed.")] = 0
    trace: Annotated[Path | None, typer.Option(help="Azure LLM trace (CSV) as the arrivals.")] = None
    out: Annotated[Path | None, typer.Option("--out", help="Folder for summary.json, decisions.jsonl.")] = (
        None
    )
    route_policy: Annotated[
        str, typer.Option(help="RoutePolicy document: policy, mode, shield and meta-contract, for --policy.")
    ] = ""
    meta: Annotated[str, typer.Option(help="MetaContract that keeps --policy; default: none.")] = ""
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False


def simulate(asked: SimulateOptions) -> None:
    """Simulate SCENARIO under one policy, or under one RoutePolicy, and print what came of it."""
    policy = asked.policy
    compiled = _load(resolve_uri(asked.scenario, "selvage"), asked.trace)
    for broken in compiled.at_rest:
        typer.echo(f"broken at rest: {broken}; {CONSEQUENCE}", err=True)
    route = _route(asked, compiled)
    policy = policy or DEFAULT if route is None else route.document.spec.policy
    setup = _configuration(policy, compiled, asked.meta) if route is None else route.setup
    _say_uncertified(route)
    if asked.out is not None:
        ready_folder(asked.out)
    chosen = list(range(asked.first_seed, asked.first_seed + asked.seeds))
    executed = route is None or not route.observes
    log = DecisionLines(setup=setup, seeds=chosen, lines=[], executed=executed) if asked.out else None
    take = log.take if log else None
    driver = ControllerDriver(setup, log=take) if route is None else route.driver(log=take)
    with on_interrupt(lambda: "nothing was kept; fewer --seeds take less time"):
        records = _run(compiled, driver, chosen)
    summary = summarise(compiled, policy, records) | _named(route, policy, asked.meta)
    if isinstance(driver, ObservingDriver):
        summary["would_have"] = _would_have(compiled, policy, driver, setup, records)
    if asked.out is not None and log is not None:
        write_json(asked.out / "summary.json", summary)
        write_whole(asked.out / "decisions.jsonl", "\n".join(log.lines) + "\n")
    if asked.as_json:
        typer.echo(json_text(summary))
    else:
        print_table(summary)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLines:
    """Collects one line per tick and seed; fleet number ``i`` has seed ``seeds[i]``."""

    setup: ControllerSetup
    seeds: list[int]
    lines: list[str]
    executed: bool = True
    """False: the decisions were not carried out."""

    def take(self, before: ControllerState, after: ControllerState, decision: Decision) -> None:
        """Explain one tick of every fleet."""
        for fleet in range(len(after.ticks)):
            line = record_json(explain(before, after, decision, self.setup, fleet))
            told = {"seed": self.seeds[fleet], "executed": self.executed, **json.loads(line)}
            self.lines.append(json_text(told))


def _would_have(
    world: CompiledScenario,
    policy: str,
    driver: ObservingDriver,
    setup: ControllerSetup,
    records: list[EpisodeRecord],
) -> dict[str, Any]:
    """The effect of an observing policy: times of its decisions, and the same episodes with them enforced."""
    decided = [measure_incident(driver.decided(record, fleet)) for fleet, record in enumerate(records)]
    lags = [None if one is None or not one.detected else one.detection_lag_s for one in decided]
    enforced = _run(world, ControllerDriver(setup), [record.seed for record in records])
    found = summarise(world, policy, enforced)
    return {
        "decision_lag_s": lags,
        "episodes": found["episodes"],
        "mean": found["mean"],
        "limits": found["limits"],
    }


def _load(file: Path, trace: Path | None) -> CompiledScenario:
    if trace is None:
        return load_scenario(file)
    return compile_scenario(with_trace(load_as(Scenario, file), trace), str(file))


def _configuration(policy: str, scenario: CompiledScenario, meta: str) -> ControllerSetup:
    try:
        notices = notices_for(parse_spec(policy)[0], scenario)
        setup = make_configuration(policy, scenario.setup, notices=notices)
        return supervised_by_uri(meta, policy, setup, "selvage simulate")
    except ValueError as error:
        raise refusal(
            "selvage simulate",
            "a policy",
            str(error),
            "e.g. --policy hysteresis:dwell_s=120",
            path="--policy",
        ) from None


def _route(asked: SimulateOptions, scenario: CompiledScenario) -> RouteSetup | None:
    if not asked.route_policy:
        return None
    for option, value in (("--policy", asked.policy), ("--meta", asked.meta)):
        if value:
            expected = "none beside --route-policy, which names its own"
            raise refusal("selvage simulate", expected, value, "leave out one of them", path=option)
    route = load_route(asked.route_policy, asked.scenario, scenario)
    for caution in (*route.gaps, *route.unknown):
        typer.echo(f"caution: {caution}", err=True)
    return route


def _say_uncertified(route: RouteSetup | None) -> None:
    for reason in () if route is None else route.uncertified:
        typer.echo(f"observing without a certificate: {reason}", err=True)


def _named(route: RouteSetup | None, policy: str, meta: str) -> dict[str, Any]:
    """Header of the summary: the policy and its meta-contract, or the document that drove."""
    if route is None:
        return {"policy_sha256": configuration_sha256(policy), "meta_contract_sha256": meta_sha256(meta)}
    document = route.document
    return {
        "route_policy": document.metadata.name,
        "route_policy_sha256": document_sha256(document),
        **route.bound,
        "mode": document.spec.mode,
        "uncertified": list(route.uncertified),
        "uncovered": list(route.gaps),
        "not_compared": list(route.unknown),
    }


def _run(scenario: CompiledScenario, driver: ControllerDriver, seeds: list[int]) -> list[EpisodeRecord]:
    text = f"{scenario.name}, {seed_count_text(seeds)}"
    with show_progress(text, 1.0) as progress, compiling_aside(progress):
        return run_episodes(
            scenario,
            driver,
            seeds,
            batch=len(seeds),
            progress=lambda share: progress.update(text, done=share),
        )
