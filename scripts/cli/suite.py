"""``selvage policy suite``: certification suites and a meta-contract for a fleet of one's own."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from policies.route import CERTIFICATE
from policies.rules.fixed import KnownGoodPolicy
from scripts.output import refuse_to_replace
from scripts.train.own_suites import SuiteRequest, write_suites


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(suite)


def suite(
    scenario: Annotated[str, typer.Argument(help="Scenario with the pool, contract and traffic.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for meta-contract.yaml and its suites.")],
    rate_rps: Annotated[
        float | None, typer.Option(min=0.001, help="Offered rate; default: the scenario's.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of the incidents.")] = 20,
    quiet_days: Annotated[float, typer.Option(min=0.001, help="Slice-days without a fault.")] = 120.0,
    baseline: Annotated[
        str, typer.Option(help="Fallback policy: hysteresis, threshold or fixed_known_good.")
    ] = "hysteresis",
    force: Annotated[bool, typer.Option("--force", help="Write over suites that are there.")] = False,
) -> None:
    """Write suites of incidents and of quiet months for SCENARIO's fleet, and a meta-contract over both.

    One false switch per slice-month takes 111 slice-days to show; a shorter suite passes no such clause.
    """
    if not force:
        refuse_to_replace(out / "meta-contract.yaml", "selvage policy suite")
    made = write_suites(
        SuiteRequest(
            scenario=scenario,
            out=out,
            rate_rps=rate_rps,
            seeds=seeds,
            quiet_days=quiet_days,
            baseline=baseline,
        )
    )
    for reason in made.left_out:
        typer.echo(f"left out: {reason}", err=True)
    typer.echo(f"{len(made.incidents)} scenarios: {', '.join(made.incidents)}", err=True)
    if baseline != KnownGoodPolicy().policy_id:
        place = made.meta.parent / CERTIFICATE.format(baseline=baseline)
        words = ("selvage", "policy", "certify", baseline, "--meta", str(made.meta), "--out", str(place))
        typer.echo(f"next, certify the fallback: {shlex.join(words)}", err=True)
    typer.echo(str(made.meta))
