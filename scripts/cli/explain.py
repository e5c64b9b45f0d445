"""``selvage explain``: why a tick, or a whole incident, went the way it did."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from contracts.errors import DocumentError, MissingPartError, printable, refusal
from contracts.loading.files import json_text
from contracts.loading.uris import resolve_uri
from controller.options import ControllerSetup
from controller.ports import Policy
from controller.shield.records import STAGES
from controller.supervise.meta import HARM_METRIC
from live.control.alarm_log import passive_line, scrapes_line
from policies.registry import make_configuration, make_policy
from policies.supervised import own_meta, supervised_by_uri
from scripts.cli.options import LARGEST_SEED, options
from scripts.cli.run_reports.bundling import write_bundle
from scripts.cli.run_reports.decision_log import Tick
from scripts.cli.run_reports.explaining import METHODS, Explained, Wanted, from_log, from_scenario
from scripts.cli.run_reports.logged_alarms import known
from scripts.e5.route import load_route
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import load_scenario

#: Longer than any simulation.
_LIVE_S = 1e9
DEFAULT = "sequential"  # the policy if none is named
_EXAMPLE = "e.g. selvage explain SCENARIO --policy sequential --seed 1 --at 150"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(options(ExplainOptions)(explain))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """The options of ``selvage explain``."""

    source: Annotated[
        str, typer.Argument(help="Scenario document (package:... too), decisions.jsonl, or a RoutePolicy.")
    ]
    policy: Annotated[str, typer.Option(help=f"name or name:key=value,...; default: {DEFAULT}.")] = ""
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the episode.")] = 0
    at: Annotated[float | None, typer.Option(help="Second of the tick; default: the incident.")] = None
    baseline: Annotated[str, typer.Option(help="What-if policy to compare; '' for none.")] = "hysteresis"
    supervised: Annotated[
        bool, typer.Option("--supervised", help="Run the policy under its meta-contract, as in service.")
    ] = False
    route_policy: Annotated[
        str, typer.Option(help="RoutePolicy document: policy, mode, shield, meta-contract, for --policy.")
    ] = ""
    meta: Annotated[
        str, typer.Option(help="MetaContract to use instead of the artefact's or the shipped one.")
    ] = ""
    method: Annotated[str, typer.Option(help="occlusion or gradients, for learned policies.")] = "occlusion"
    features: Annotated[int, typer.Option(min=1, help="Features shown per slice.")] = 8
    reference: Annotated[float, typer.Option(help="Second of the tick to compare with.")] = 60.0
    bundle: Annotated[
        Path | None, typer.Option(help="Write the bundle of an incident of a live log into this folder.")
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="SOURCE is a RoutePolicy: its newest decisions and Events.")
    ] = False
    namespace: Annotated[str, typer.Option(envvar="SELVAGE_NAMESPACE", help="Its namespace.")] = "default"


def explain(asked: ExplainOptions) -> None:
    """Explain which clause moved which weight, what changed it, and what the baseline would do."""
    if asked.kubernetes:
        _of_cluster(asked)
        return
    if asked.method not in METHODS:
        raise _refusal("--method", " or ".join(METHODS), asked.method)
    for option, instant in (("--at", asked.at), ("--reference", asked.reference)):
        if instant is not None and not math.isfinite(instant):
            raise _refusal(option, "a time in seconds", str(instant))
    if asked.source.endswith(".jsonl") or Path(asked.source).is_dir():
        found = from_log(Path(asked.source), asked.seed, asked.at)
    elif asked.bundle is not None:
        raise _refusal("--bundle", "a decision log, or the folder of one", asked.source)
    else:
        world = load_scenario(resolve_uri(asked.source, "selvage"))
        setup, baseline, observes = _configuration(asked, world)
        wanted = Wanted(
            at_s=asked.at, method=asked.method, features=asked.features, reference_s=asked.reference
        )
        with Console(stderr=True).status(f"running {world.name} again"):
            found = from_scenario(world, setup, baseline, asked.seed, wanted, observes=observes)
    if asked.bundle is not None:
        for line in write_bundle(Path(asked.source), asked.bundle, found, text_lines(found)):
            typer.echo(line, err=True)
    if asked.as_json:
        typer.echo(json_text(found.plain()))
    else:
        print_explained(found)


def _of_cluster(asked: ExplainOptions) -> None:
    if asked.as_json or asked.bundle is not None or asked.at is not None:
        raise _refusal("--kubernetes", "no --json, --bundle or --at beside it", "one of them")
    try:
        from k8s.process.commands import explained_lines
    except ModuleNotFoundError as error:
        raise MissingPartError(f"{error.name} is not installed; pip install 'selvage-fleet[k8s]'") from None
    for line in explained_lines(asked.source, asked.namespace):
        typer.echo(printable(line))


def _configuration(
    asked: ExplainOptions, world: CompiledScenario
) -> tuple[ControllerSetup, Policy | None, bool]:
    """``(set-up, baseline asked what-if, whether nothing is executed)``."""
    if asked.route_policy and (asked.policy or asked.supervised or asked.meta):
        raise _refusal("--route-policy", "no --policy, --supervised or --meta beside it", asked.route_policy)
    try:
        if asked.route_policy:
            route = load_route(asked.route_policy, asked.source, world)
            setup, observes = route.setup, route.observes
        else:
            setup, observes = make_configuration(asked.policy or DEFAULT, world.setup), False
        baseline = make_policy(asked.baseline, setup.fleet) if asked.baseline else None
    except ValueError as error:
        raise _refusal("--policy", "a policy", str(error)) from None
    if not (asked.supervised or asked.meta):
        return setup, baseline, observes
    policy = asked.policy or DEFAULT
    supervised = supervised_by_uri(asked.meta or own_meta(policy), policy, setup, "selvage explain")
    return supervised, baseline, observes


def print_explained(found: Explained) -> None:
    """Print the incident's measures, then the moves and their reasons tick by tick."""
    console = Console(highlight=False, soft_wrap=True, markup=False)
    for line in text_lines(found):
        console.print(line)


def text_lines(found: Explained) -> list[str]:
    """The explanation as lines of text."""
    lines = [", ".join(f"{key} {value}" for key, value in found.header.items() if value != "")]
    if found.incident is not None:
        lines.append(_incident(found.incident))
    lines += [str(one) for one in found.missing]
    if not (found.ticks or found.missing):
        lines.append("no tick there, or none that moved anything; --at SECOND explains any tick")
    lines += [f"{_instant(one['now_s'])}: {passive_line(one)}" for one in found.passive]
    lines += [f"{_instant(one['now_s'])}: {scrapes_line(one)}" for one in found.scrapes]
    lines += [one.line(_instant) for one in found.quiet]
    for tick in found.ticks:
        lines += ["", *tick_lines(tick)]
    return lines


def _incident(incident: dict[str, Any]) -> str:
    head = f"incident {incident['fault']}: onset {incident['onset_at_s']:g} s, "
    if "enforced" not in incident:
        return head + _course(incident)
    lines = [head + f"nothing executed, {_end(incident)}"]
    if incident["decided"] is not None:
        lines.append(f"  its decisions: {_acted(incident['decided'])}")
    if incident["enforced"] is not None:
        lines.append(f"  had they been enforced: {_course(incident['enforced'])}")
    return "\n".join(lines)


def _course(incident: dict[str, Any]) -> str:
    return f"{_acted(incident)}, {_end(incident)}"


def _acted(incident: dict[str, Any]) -> str:
    return f"acted on after {incident['detection_lag_s']:g} s" if incident["detected"] else "never acted on"


def _end(incident: dict[str, Any]) -> str:
    return f"over after {incident['mttr_s']:g} s" if incident["recovered"] else "not recovered"


def tick_lines(tick: Tick) -> list[str]:
    """One decision record as lines of text."""
    flags = [name for name in ("held", "degraded", "capacity_move") if tick.get(name)]
    flags += [] if tick.get("executed", True) else ["observed, not executed"]
    head = f"{_instant(tick['now_s'])}, plan {tick['plan_version']}"
    head += f" ({', '.join(flags)})" if flags else ""
    lines = [head]
    if tick.get("demoted"):
        effect = "the home table stands" if tick["demotion_reason"] == HARM_METRIC else "the baseline drives"
        lines.append(f"  {effect}: the policy broke {tick['demotion_reason']}")
    for name in dict.fromkeys(move["slice"] for move in tick["moves"]):
        lines += _row_lines(tick, name)
    lines += [f"  {r['replica']} quarantined: {r['reason']}" for r in tick["quarantined"] if r["new"]]
    lines += [f"  {replica} back in rotation" for replica in tick.get("readmitted", ())]
    lines += _evidence_lines(tick)
    lines += _held_back(tick)
    lines += _own_moves(tick)
    lines += [f"  assumed: {text}" for text in tick.get("assumptions", ())]
    for part in tick.get("attribution", ()):
        lines += _attribution_lines(part)
    lines += _readings(tick)
    return lines


def _instant(now_s: float) -> str:
    """Seconds of a simulation; of a live log, which counts from 1970, also the time of day in UTC."""
    if now_s < _LIVE_S:
        return f"{now_s:g} s"
    return f"{datetime.fromtimestamp(now_s, tz=UTC):%Y-%m-%d %H:%M:%S} UTC ({now_s:.0f} s)"


def _own_moves(tick: Tick) -> list[str]:
    """Moves of ours that made things worse: reverted, stopped, kept for lack of a way back, or held."""
    return [
        f"  {move['slice']}: {move['action']}; {move['worse']} had {move['bad_since']} bad blocks of "
        f"{move['blocks_since']} since, {move['bad_before']} of {move['blocks_before']} before the move"
        + (f"; held until {move['held_until_at_s']:g} s" if move["held_until_at_s"] is not None else "")
        for move in tick.get("own_moves", ())
        if move["action"] != "watched"
    ]


def _row_lines(tick: Tick, name: str) -> list[str]:
    row = [move for move in tick["moves"] if move["slice"] == name]
    moved = ", ".join(f"{m['target']} {m['before']:.2f} -> {m['after']:.2f}" for m in row)
    lines = [f"  {name}: {moved}", f"    because: {'; '.join(row[0].get('because', ('not logged',)))}"]
    lines.append("    proposed: " + ", ".join(f"{m['target']} {m['proposed']:.2f}" for m in row))
    steps = [step for step in tick.get("shield", ()) if step["slice"] == name]
    lines += [f"    shield: {_step(step)}" for step in steps]
    lines += [
        f"    lesser evil: {e['weight']:.2f} on {e['kernel']} at a loss of {e['loss']:.2f} answers each, "
        f"{e['loss_if_shed']:.2f} if shed"
        for e in tick.get("lesser_evils", ())
        if e["slice"] == name
    ]
    other = [w for w in tick.get("what_if", ()) if w["slice"] == name]
    if any(m.get("baseline") is not None for m in row):
        proposed = ", ".join(f"{w['target']} {w['baseline']:.2f}" for w in other)
        lines.append(f"    baseline: {proposed or 'the same proposal'}")
    return lines


def _step(step: dict[str, Any]) -> str:
    sizes = [f"{s} {size:.2f}" for s, size in zip(STAGES, step["sizes"], strict=True) if size > 0.0]
    return ", ".join(step["reasons"]) + (f" (moved by {', '.join(sizes)})" if sizes else "")


def _held_back(tick: Tick) -> list[str]:
    """Rows that the shield changed although nothing moved."""
    moved = {move["slice"] for move in tick["moves"]}
    return [
        f"  {step['slice']}: nothing moved; shield: {_step(step)}"
        for step in tick.get("shield", ())
        if step["slice"] not in moved
    ]


def _evidence_lines(tick: Tick) -> list[str]:
    """Alarms on the slices that moved; on all of them if none did."""
    moved = {move["slice"] for move in tick["moves"]} or {e["slice"] for e in tick["evidence"]}
    return [
        f"  alarm {e['clause_id']} on {e['kernel']}/{e['slice']}: "
        f"{known(e['estimate'])} against {known(e['limit'])} from {e['observations']:.0f} observations"
        for e in tick["evidence"]
        if e["slice"] in moved
    ]


def _attribution_lines(part: dict[str, Any]) -> list[str]:
    head = (
        f"  {part['slice']}: {part['chosen']} over {part['over']} by {part['margin']:.3g} ({part['method']})"
    )
    return [head] + [
        f"    {f['effect']:+.3g}  {f['name']} = {f['value']:.3g}, was {f['reference']:.3g}"
        for f in part["features"]
    ]


def _readings(tick: Tick) -> list[str]:
    """Clauses of the meta-contract that have used at least half of their budget."""
    near = [
        f"{r['metric']} {r['value']:.3g} of {r['limit']:g}"
        for r in tick.get("readings", ())
        if None not in (r["value"], r["limit"])
        and r["metric"] != "dwell_s"
        and r["limit"] > 0.0
        and r["value"] >= 0.5 * r["limit"]
    ]
    return [f"  meta-contract: {', '.join(near)}"] if near else []


def _refusal(path: str, expected: str, actual: str) -> DocumentError:
    return refusal("selvage explain", expected, actual, _EXAMPLE, path=path)
