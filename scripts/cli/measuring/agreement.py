"""``selvage profile agree``: whether several profiles of one server agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from contracts.documents.profile import KernelProfile
from contracts.errors import refusal
from contracts.loading.files import json_text
from contracts.loading.loader import document_sha256, load_as
from contracts.loading.profiles import why_untimed
from live.measure.steps.agreement import (
    CAPACITY_SHARE,
    WANTED_SHARE,
    CapacityTerms,
    StepAgreement,
    ValueAgreement,
    step_agreement,
)

_Profiles = Mapping[Path, KernelProfile]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreeOptions:
    """The options of ``selvage profile agree``."""

    profiles: Annotated[
        list[Path], typer.Argument(help="Two or more profiles of one server, of one configuration.")
    ]
    prompt_tokens: Annotated[
        float, typer.Option(min=1.0, max=1e6, help="Mean prompt of the requests that capacity is asked of.")
    ] = 48.0
    output_tokens: Annotated[float, typer.Option(min=1.0, max=1e6, help="Their mean answer, tokens.")] = 24.0
    max_sequences: Annotated[
        int | None,
        typer.Option(min=1, max=65536, help="Most of them at once; default: as many as were predicted."),
    ] = None
    ttft_ms: Annotated[
        float | None, typer.Option(min=0.0, help="Objective of the first token; default: none.")
    ] = None
    inter_token_ms: Annotated[
        float | None, typer.Option(min=0.0, help="Objective between two tokens; default: none.")
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False


def agree(asked: AgreeOptions) -> None:
    """Whether PROFILES of one server agree on its step times, and on what a replica carries with them.

    Exit code 1 if two intervals of a coefficient or of a predicted step time do not meet, if a prediction is
    known to less than 15 %, or if capacities differ by more than 10 %.
    """
    profiles = {path: load_as(KernelProfile, path) for path in asked.profiles}
    _refuse_incomparable(profiles)
    steps = [one.spec.step_time for one in profiles.values()]
    served = [one.spec.serving for one in profiles.values()]
    found = step_agreement([one for one in steps if one is not None], served, _terms(asked))
    shares = dict(zip(map(str, profiles), found.half_width_shares, strict=True))
    typer.echo(_agreement_json(found, shares) if asked.as_json else _agreement_text(found, shares))
    if not found.agrees:
        raise typer.Exit(1)


def _refuse_incomparable(profiles: _Profiles) -> None:
    """DocumentError for profiles of no common server: no step times, another build, a copy of one file."""
    (first, head), *_ = profiles.items()
    seen: dict[str, Path] = {}
    for path, one in profiles.items():
        if one.spec.step_time is None:
            raise refusal(str(path), "a profile with step times", *why_untimed(one))
        if one.spec.fingerprint != head.spec.fingerprint:
            expected = f"the configuration of {first} ({head.spec.kernel})"
            hint = "compare profiles of one server, measured at different times"
            raise refusal(str(path), expected, f"another, of {one.spec.kernel}", hint)
        twin = seen.setdefault(document_sha256(one), path)
        if twin != path:
            hint = "a measurement always agrees with itself; give another one"
            raise refusal(str(path), "a measurement of its own", f"a copy of {twin}", hint)


def _terms(asked: AgreeOptions) -> CapacityTerms:
    never = float("inf")
    return CapacityTerms(
        prompt_tokens=asked.prompt_tokens,
        output_tokens=asked.output_tokens,
        max_sequences=asked.max_sequences,
        ttft_ms=never if asked.ttft_ms is None else asked.ttft_ms,
        inter_token_ms=never if asked.inter_token_ms is None else asked.inter_token_ms,
    )


def _agreement_json(found: StepAgreement, shares: Mapping[str, float]) -> str:
    capacity = asdict(found.capacity) | {"agrees": found.capacity.agrees, "apart": found.capacity.apart}
    rows = {
        key: [asdict(one) | {"agrees": one.agrees} for one in values]
        for key, values in (("coefficients", found.coefficients), ("predictions", found.predictions))
    }
    return json_text({"agrees": found.agrees, "capacity": capacity, "half_width_shares": dict(shares)} | rows)


def _agreement_text(found: StepAgreement, shares: Mapping[str, float]) -> str:
    """Markdown: a row per coefficient, per predicted step time and for capacity, then the uncertain facts."""
    heads = [*shares, "apart", "agree"]
    lines = ["| of the steps, ms | " + " | ".join(heads) + " |", "|" + " --- |" * (len(heads) + 1)]
    lines += [_row(one) for one in (*found.coefficients, *found.predictions)]
    carried = [f"{rate:.4g}/s" for rate in found.capacity.carried_rps]
    cells = [*carried, f"{100.0 * found.capacity.apart:.0f} %", "yes" if found.capacity.agrees else "no"]
    lines.append("| capacity of a replica | " + " | ".join(cells) + " |")
    message = "; ".join(f"{name} ±{100.0 * share:.0f} %" for name, share in shares.items())
    path = "serving path included" if found.capacity.served else "of steps alone"
    return "\n".join(
        [
            *lines,
            "",
            "apart: largest difference by the half-widths together (at most 1);"
            f" of capacity largest by smallest less one (at most {100 * CAPACITY_SHARE:.0f} %)",
            f"least sure predicted step time: {message} (within {100 * WANTED_SHARE:.0f} %)",
            f"capacity: {found.capacity.max_sequences} sequences at once, {path}",
        ]
    )


def _row(one: ValueAgreement) -> str:
    pairs = zip(one.values, one.half_widths, strict=True)
    cells = [f"{value:.4g} ± {width:.2g}" for value, width in pairs]
    return f"| {one.name} | " + " | ".join([*cells, f"{one.apart:.2f}", "yes" if one.agrees else "no"]) + " |"
