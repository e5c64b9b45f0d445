"""``selvage contract evaluate|propose|bounds``: judge samples, write a contract, print the bound chain.

``evaluate`` exits 0 Successful, 1 Failed, 2 Error (bad input), 3 Inconclusive. Results go to stdout.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError

from contracts.assess.assumptions import Assumption, check_assumptions
from contracts.assess.attribution import Attribution, attribute
from contracts.assess.evaluate import LEAST_OBSERVATIONS, Evaluation, evaluate
from contracts.assess.gate import GateOutcome, parse_waiver
from contracts.assess.observations import ALL_SPLITS, Observations
from contracts.documents import KernelContract
from contracts.documents.profile import HEALTHY
from contracts.errors import DocumentError, Problem
from contracts.loading.loader import canonical_json, dump_text
from contracts.loading.uris import resolve_uri
from contracts.units import CONFIDENCE
from scripts.cli.judging import tables as tables
from scripts.cli.judging.inputs import (
    ContractInputs,
    certified_observations,
    input_refusal,
    known_sources,
    load_all,
    load_contract,
    load_judged,
    load_profile,
)
from scripts.cli.judging.junit import junit_error, junit_xml
from scripts.cli.options import options
from scripts.output import refuse_to_replace, write_whole

if TYPE_CHECKING:
    from contracts.assess.bound_table import BoundRow

ContractName = Annotated[
    str, typer.Argument(help="KernelContract: a path, or package:... for a shipped one.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print sorted JSON.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Also write the result to this file.")]
Condition = Annotated[str, typer.Option(help="Measured condition of the profile.")]
Split = Annotated[str, typer.Option(help="Prompts to judge: certify, probe, traffic or all.")]
Truncated = Annotated[
    bool | None,
    typer.Option("--truncated-sampling/--full-sampling", help="Whether rollouts use top-k, top-p or min-p."),
]


def register(app: typer.Typer) -> None:
    """Add the three commands to the ``contract`` group."""
    app.command("evaluate")(options(EvaluateOptions)(evaluate_command))
    app.command("propose")(options(ProposeOptions)(propose_command))
    app.command("bounds")(options(BoundsOptions)(bounds_command))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateOptions:
    """The options of ``selvage contract evaluate``."""

    contract: ContractName
    samples: Annotated[
        list[str],
        typer.Argument(
            help="Profile (.yaml), samples (.npz), logs of observations (.jsonl): one verdict on all."
        ),
    ]
    condition: Condition = HEALTHY
    split: Split = ALL_SPLITS
    confidence: Annotated[float, typer.Option(help="One-sided confidence of every verdict, 0..1.")] = (
        CONFIDENCE
    )
    least_observations: Annotated[
        int, typer.Option(help="Least observations of a mean; with fewer it is inconclusive.")
    ] = LEAST_OBSERVATIONS
    truncated_sampling: Truncated = None
    waive: Annotated[
        list[str] | None,
        typer.Option(
            help="CLAUSE=reason, CLAUSE/SLICE=reason or */SLICE=reason: may stay undecided; repeatable."
        ),
    ] = None
    as_json: AsJson = False
    junit: Annotated[Path | None, typer.Option(help="Also write JUnit XML to this file.")] = None
    out: Out = None


def evaluate_command(asked: EvaluateOptions) -> None:
    """Judge SAMPLES by CONTRACT: exits 0 Successful, 1 Failed, 2 Error (bad input), 3 Inconclusive.

    Inconclusive is what hard clauses, clauses of level L3 and slices without a sample leave open, unless
    --waive names them with a reason.
    """
    try:
        outcome = _evaluated(asked)
    except DocumentError as error:
        if asked.junit is not None and asked.junit.parent.is_dir():
            _write(asked.junit, junit_error(asked.contract, error))
        raise
    raise typer.Exit(outcome.exit_code)


def _evaluated(asked: EvaluateOptions) -> GateOutcome:
    """Judge, write and show; returns the evaluation."""
    if not 0.5 < asked.confidence < 1.0 or asked.least_observations < 2:
        raise input_refusal(
            "--confidence",
            "between 0.5 and 1, and --least-observations >= 2",
            f"{asked.confidence}, {asked.least_observations}",
        )
    terms, judged = load_contract(asked.contract), load_all(asked.samples, asked.condition, asked.split)
    result = evaluate(
        terms,
        judged.observations,
        confidence=asked.confidence,
        least_observations=asked.least_observations,
        waivers=[parse_waiver(text) for text in asked.waive or ()],
    )
    causes = _causes(terms, judged, result)
    assumed = _assumptions(terms, judged.observations, asked.truncated_sampling)
    text = tables.evaluation_json(result, causes, assumed, judged.profile_sha256)
    _write(asked.out, text)
    _write(asked.junit, junit_xml(result) if asked.junit else "")
    if asked.as_json:
        typer.echo(text)
    else:
        console = tables.wide_console()
        tables.show_evaluation(console, result)
        tables.show_attributions(console, causes)
        tables.show_assumptions(console, assumed)
    return result.outcome


def _causes(terms: KernelContract, judged: ContractInputs, result: Evaluation) -> tuple[Attribution, ...]:
    if judged.profile is None:
        return ()
    sources, certified = known_sources(judged.profile), certified_observations(judged)
    return attribute(result, sources, terms.spec.temperature, certified)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposeOptions:
    """The argument and the options of ``selvage contract propose``."""

    profiles: Annotated[list[str], typer.Argument(help="KernelProfiles that must all keep the contract.")]
    name: Annotated[str, typer.Option(help="Name of the contract.")] = "proposed"
    margin: Annotated[float, typer.Option(help="Factor between healthy limit and threshold.")] = 2.0
    confidence: Annotated[float, typer.Option(help="One-sided confidence of the healthy limit, 0..1.")] = (
        CONFIDENCE
    )
    reward_drift: Annotated[
        float, typer.Option(help="Tolerated drift of a one-step reward, share of its range.")
    ] = 0.05
    as_json: AsJson = False
    out: Out = None
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False


def propose_command(asked: ProposeOptions) -> None:
    """Write a contract for PROFILES: thresholds from certify prompts and the bound chain, with reasons."""
    from contracts.assess.propose import ProposalTerms, SampledKernel, propose  # which a gate never needs

    if not asked.force:
        refuse_to_replace(asked.out, "selvage contract propose")
    kernels = []
    for each in asked.profiles:
        profile, samples = load_profile(resolve_uri(each, "selvage"))
        kernels.append(SampledKernel(name=profile.spec.kernel, samples=samples))
    try:
        terms = ProposalTerms(
            margin=asked.margin, confidence=asked.confidence, reward_drift=asked.reward_drift
        )
        made = propose(asked.name, kernels, terms)
    except ValidationError as error:
        raise _unwritable(error) from None
    except (ValueError, KeyError) as error:
        raise input_refusal(
            "selvage contract propose", "terms and profiles to propose from", str(error)
        ) from error
    text = dump_text(made)
    _write(asked.out, text)
    typer.echo(canonical_json(made) if asked.as_json else text)


def _unwritable(error: ValidationError) -> DocumentError:
    """The reason why the proposed contract is invalid: a bad name, a margin beyond a metric's range."""
    found = [
        Problem(
            "selvage contract propose",
            0,
            ".".join(map(str, each["loc"])),
            "a valid contract",
            f"{each['msg']} ({each['input']!r:.60})",
            "check --name and --margin",
        )
        for each in error.errors()
    ]
    return DocumentError(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundsOptions:
    """The options of ``selvage contract bounds``."""

    contract: Annotated[str, typer.Argument(help="KernelContract; default: the chain of bounds alone.")] = ""
    samples: Annotated[str, typer.Option(help="Profile, samples or log to compare with.")] = ""
    distance: Annotated[list[float] | None, typer.Option(help="Logit distance d, repeatable.")] = None
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature; default: the contract's, else 1.")
    ] = None
    condition: Condition = HEALTHY
    split: Split = ALL_SPLITS
    truncated_sampling: Truncated = None
    as_json: AsJson = False
    out: Out = None


def bounds_command(asked: BoundsOptions) -> None:
    """Print the bound chain, sharp and paper constants, beside what was measured."""
    terms = load_contract(asked.contract) if asked.contract else None
    seen = load_judged(asked.samples, asked.condition, asked.split).observations if asked.samples else None
    declared = terms.spec.temperature if terms else 1.0
    heat = declared if asked.temperature is None else asked.temperature
    try:
        rows = _rows(terms, seen, asked.distance or [], heat)
    except ValueError as error:
        raise input_refusal(
            "selvage contract bounds", "distances >= 0 and a temperature > 0", str(error)
        ) from error
    assumed = _assumptions(terms, seen, asked.truncated_sampling)
    text = tables.bounds_json(rows, assumed)
    _write(asked.out, text)
    if asked.as_json:
        typer.echo(text)
        return
    console = tables.wide_console()
    tables.show_bounds(console, rows)
    tables.show_assumptions(console, assumed)


def _rows(
    terms: KernelContract | None, seen: Observations | None, distances: list[float], temperature: float
) -> list[BoundRow]:
    from contracts.assess.bound_table import clause_rows, distance_rows, sample_rows

    declared = terms.spec.assumptions if terms else None
    if not (terms or seen or distances):
        distances = [0.01, 0.1, 1.0]
    rows = [row for each in distances for row in distance_rows(each, temperature, declared)]
    if terms is not None:
        rows += clause_rows(terms, seen)
    if seen is not None:
        rows += sample_rows(seen, temperature, declared)
    return rows


def _assumptions(
    terms: KernelContract | None, seen: Observations | None, truncated: bool | None
) -> tuple[Assumption, ...]:
    declared = terms.spec.assumptions if terms else None
    return check_assumptions(seen, declared, truncated_sampling=truncated) if declared else ()


def _write(path: Path | None, text: str) -> None:
    if path is not None:
        write_whole(path, text.rstrip() + "\n")
