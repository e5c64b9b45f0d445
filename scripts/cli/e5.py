"""``selvage e5``: compare policies under injected faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from contracts.errors import DocumentError, MissingPartError, refusal
from contracts.loading.shipped import STRESS_SUITE
from contracts.loading.uris import resolve_uri
from scripts.cli.options import LARGEST_SEED, MOST_SEEDS, options
from scripts.e5.run.experiment import Options
from scripts.e5.run.terminal import command_from, command_of, configurations_of, run_and_show
from scripts.provenance import cores
from scripts.workers import BACKEND_HELP, EVERY_CORE, refuse_unknown


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(options(E5Options)(e5))


@dataclass(frozen=True, slots=True, kw_only=True)
class E5Options:
    """The options of ``selvage e5``."""

    out: Annotated[Path, typer.Option("--out", help="Folder for e5.json, report.html and parts/.")]
    suite: Annotated[
        str, typer.Option(help="Suite document (file or package: URI); default: the shipped one.")
    ] = ""
    policies: Annotated[str, typer.Option(help="Comma-separated configurations; default: the suite's.")] = ""
    seeds: Annotated[int | None, typer.Option(help="Paired seeds; default: the suite's.")] = None
    stress_seeds: Annotated[
        int,
        typer.Option(
            help="Seeds, at most --seeds, of the stress part that follows the shipped suite, into stress/ of "
            "--out: wrong loads and declarations. 0: none."
        ),
    ] = 2
    jobs: Annotated[int, typer.Option(help="Processes; 0 takes every core.")] = 0
    backend: Annotated[str, typer.Option(help=BACKEND_HELP)] = "loky"
    batch: Annotated[int | None, typer.Option(help="Fleets in lock-step; default: all seeds.")] = None
    trace: Annotated[Path | None, typer.Option(help="Azure LLM trace (CSV) as the arrivals.")] = None
    route_policy: Annotated[
        str,
        typer.Option(
            help="RoutePolicy document: its policy, mode, shield and meta-contract as one more "
            "configuration. Of --target kubernetes: the name of the resource whose pool is drilled."
        ),
    ] = ""
    meta: Annotated[
        str,
        typer.Option(
            help="MetaContract that keeps every policy of --policies. Without: none in sim; of local each "
            "artefact's, else the shipped one; of kubernetes the RoutePolicy's."
        ),
    ] = ""
    target: Annotated[
        str,
        typer.Option(
            help="sim, local: real vLLM servers of this machine, or kubernetes: those of a cluster."
        ),
    ] = "sim"
    drills: Annotated[
        str,
        typer.Option(
            help="Comma-separated drills: of local silent,crash,hang,slow,healthy; of kubernetes their files."
        ),
    ] = ""
    hold: Annotated[
        float, typer.Option(help="With --target local or kubernetes: duration of a fault, s.")
    ] = 120.0
    folder: Annotated[
        Path | None,
        typer.Option(help="With --target local: folder of the fleet; default: that of `selvage fleet`."),
    ] = None
    namespace: Annotated[
        str,
        typer.Option(
            envvar="SELVAGE_NAMESPACE", help="With --target kubernetes: namespace of the RoutePolicy."
        ),
    ] = "default"
    undo: Annotated[
        bool,
        typer.Option("--undo", help="With --target kubernetes: undo the changes of a killed run, then exit."),
    ] = False
    as_json: Annotated[bool, typer.Option("--json", help="Print e5.json instead of the table.")] = False


def e5(asked: E5Options) -> None:
    """Run the suite under every configuration with paired seeds; write the results and a report.

    No result depends on --jobs or --batch.
    """
    _at_least("--seeds", asked.seeds, 1, MOST_SEEDS)
    _at_least("--stress-seeds", asked.stress_seeds, 0, MOST_SEEDS)
    _at_least("--jobs", asked.jobs, 0)
    refuse_unknown(asked.backend, "selvage e5")
    _at_least("--batch", asked.batch, 1)
    if asked.target in _ON_SERVERS:
        _only_with("sim", {"--suite": asked.suite, "--trace": asked.trace})
        _only_with("sim", {"--batch": asked.batch, "--jobs": asked.jobs})
        if not asked.hold >= 70.0:
            hint = "a recovery counts when it lasts 60 s; e.g. --hold 120"
            raise _refusal("--hold", "at least 70 s", f"{asked.hold:g}", hint)
        _ON_SERVERS[asked.target](asked)
        return
    _only_with("local", {"--drills": asked.drills, "--folder": asked.folder})
    _only_with("kubernetes", {"--undo": asked.undo})
    if asked.target != "sim":
        raise _refusal("--target", "sim, local or kubernetes", asked.target, "e.g. --target local")
    run_and_show(_run_options(asked), as_json=asked.as_json)
    if _has_stress_part(asked):
        typer.echo("the stress part: which policies do harm where declarations are wrong", err=True)
        run_and_show(_run_options(_stress_part(asked)), quiet=asked.as_json)


def _has_stress_part(asked: E5Options) -> bool:
    """Whether the stress part follows: after the shipped suite alone, with its own arrivals."""
    return asked.stress_seeds > 0 and not asked.suite and asked.trace is None


def _stress_part(asked: E5Options) -> E5Options:
    """The options of a separate run; a route policy belongs to the shipped suite's pool, and to no other."""
    seeds = min(asked.stress_seeds, asked.seeds or asked.stress_seeds)
    return replace(asked, suite=STRESS_SUITE, seeds=seeds, out=asked.out / "stress", route_policy="")


def _run_local(asked: E5Options) -> None:
    """The reduced suite on real servers."""
    from scripts.drill.local import default_folder
    from scripts.e5_local.experiment import run_local
    from scripts.e5_local.plan import LocalOptions

    _only_with("sim", {"--route-policy": asked.route_policy})
    _only_with("kubernetes", {"--undo": asked.undo})
    given = {"--target": "local", "--policies": asked.policies, "--drills": asked.drills}
    options = LocalOptions(
        out=asked.out,
        folder=default_folder(asked.folder),
        policies=_listed(asked.policies),
        drills=_listed(asked.drills),
        seeds=asked.seeds or 1,
        hold_s=asked.hold,
        command=_drilled(given, asked),
        meta=asked.meta,
    )
    run_local(options, as_json=asked.as_json)


def _run_cluster(asked: E5Options) -> None:
    """Drills on the pods of a cluster."""
    try:
        from scripts.e5_cluster.experiment import run_cluster, undo_experiment
        from scripts.e5_cluster.plan import ClusterOptions
    except ModuleNotFoundError as error:
        raise MissingPartError(f"{error.name} is not installed; pip install 'selvage-fleet[k8s]'") from None

    _only_with("local", {"--folder": asked.folder})
    if not asked.route_policy:
        raise _refusal("--route-policy", "the name of a RoutePolicy", "none", "e.g. --route-policy chat")
    if asked.undo:
        undo_experiment(asked.namespace, asked.route_policy)
        return
    given = {"--target": "kubernetes", "--namespace": asked.namespace, "--route-policy": asked.route_policy}
    given |= {"--policies": asked.policies, "--drills": asked.drills}
    options = ClusterOptions(
        out=asked.out,
        namespace=asked.namespace,
        route_policy=asked.route_policy,
        policies=_listed(asked.policies),
        drills=_listed(asked.drills),
        seeds=asked.seeds or 1,
        hold_s=asked.hold,
        command=_drilled(given, asked),
        meta=asked.meta,
    )
    run_cluster(options, as_json=asked.as_json)


def _drilled(given: Mapping[str, object], asked: E5Options) -> str:
    """The command that repeats the run, from the options in ``given`` for one target."""
    common = {"--seeds": asked.seeds, "--hold": f"{asked.hold:g}", "--meta": asked.meta}
    return command_from({**given, **common})


_ON_SERVERS = {"local": _run_local, "kubernetes": _run_cluster}


def _listed(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _only_with(target: str, given: Mapping[str, object]) -> None:
    """Refuse options that have no effect on the other target."""
    named = [name for name, value in given.items() if value]
    if named:
        raise _refusal(
            named[0], f"--target {target}", "the other target", f"leave it out, or add --target {target}"
        )


def _run_options(asked: E5Options) -> Options:
    return Options(
        out=asked.out,
        suite=resolve_uri(asked.suite, "selvage e5") if asked.suite else None,
        policies=configurations_of(asked.policies) if asked.policies else None,
        seeds=asked.seeds,
        jobs=asked.jobs or (cores() if asked.backend == "loky" else EVERY_CORE),
        backend=asked.backend,
        batch=asked.batch,
        trace=asked.trace,
        route_policy=asked.route_policy,
        meta=asked.meta,
        command=command_of(
            asked.suite, asked.policies, asked.seeds, asked.trace, asked.route_policy, asked.meta
        ),
    )


def _at_least(name: str, value: int | None, least: int, most: int = LARGEST_SEED) -> None:
    if value is not None and not least <= value <= most:
        expected = f"a whole number of at least {least}" + (f", at most {most}" if value > most else "")
        raise _refusal(name, expected, str(value), f"e.g. {name} 2")


def _refusal(path: str, expected: str, actual: str, next_step: str) -> DocumentError:
    return refusal("selvage e5", expected, actual, next_step, path=path)
