"""Random worlds with other engines and contracts: ``python -m scripts.studies.worlds.foreign 0 60``.

The worlds of ``drawn`` with facts changed that these keep: engines whose steps take up to 25 times as long
and whose prompts, sequences and contexts cost other shares of it; contracts of one to five slices with other
objectives; gateways that wait for up to five minutes. ``--alone`` leaves one kernel of up to three replicas
at 100 to 150 % of its estimated capacity, and no fault: only shedding could help there, which is harm if the
kernel carries the load after all. A line per world as in ``harm``; ``learned`` drives five slices alone, so
it is left out.
"""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
import yaml

from contracts.loading.shipped import LIBRARY, SERVING_POOL
from contracts.loading.uris import resolve_uri
from contracts.rng import stream
from scripts.studies.worlds.drawn import SEED, SLICES, Spec, draw_spec
from scripts.studies.worlds.harm import AsJson, Only, Policies, Seeds, WorldsRun, at_load, print_worlds
from simulator.world.compiled_scenario import CompiledScenario

#: Coefficients of the step time, and the range of their factors.
FACTORS: dict[str, tuple[float, float]] = {
    "base_ms": (1.0, 25.0),
    "per_prefill_token_ms": (0.1, 5.0),
    "per_decode_sequence_ms": (0.2, 5.0),
    "per_context_token_ms": (0.1, 3.0),
}
#: Objectives of every slice, and the range of their factors.
OBJECTIVES: dict[str, tuple[float, tuple[float, ...]]] = {
    "latency_ms": (15000.0, (1.0, 2.0, 4.0, 8.0)),
    "ttft_ms": (2000.0, (0.5, 1.0, 3.0)),
    "inter_token_ms": (80.0, (1.0, 2.0, 4.0)),
}
#: Clauses on an objective, by the beginning of their names, and those of slow slices, left out.
PROMISED = {"R-ttft": "ttft_ms", "R-latency": "latency_ms", "R-inter-token": "inter_token_ms"}
LONG = "-long"
TIMEOUTS_S = (60.0, 120.0, 300.0)
MOST_ALONE = 3


def foreign_world(number: int, folder: Path, *, alone: bool = False) -> tuple[CompiledScenario, Spec]:
    """World ``number``, whose contract and profiles are written to ``folder``."""
    rng = stream(SEED, "foreign worlds", number)
    spec, load = draw_spec(number)
    slices = sorted(rng.choice(SLICES, size=int(rng.integers(1, 6)), replace=False), key=SLICES.index)
    if alone:
        load = float(rng.uniform(1.0, 1.5))
        _leave_one_kernel(spec)
    factors = {key: _between(rng, *bounds) for key, bounds in FACTORS.items()}
    for kernel in spec["pool"]["kernels"]:
        kernel["profile"] = str(_written_profile(folder, kernel["profile"], factors))
    spec["contract"] = str(_written_contract(folder, rng, slices))
    spec["gateway"] = {"timeout_s": float(rng.choice(TIMEOUTS_S))}
    spec["pool"]["home"] = [one for one in spec["pool"]["home"] if one["slice"] in slices]
    spec["workload"]["slice_mix"] = _mix_of(spec, slices)
    return at_load(number, spec, load)


def _between(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _leave_one_kernel(spec: Spec) -> None:
    """Everything at home on the first home's kernel, no fault, and the mean request as declared."""
    home = spec["pool"]["home"][0]["kernel"]
    kernel = next(one for one in spec["pool"]["kernels"] if one["name"] == home)
    replicas = min(kernel["replicas"], MOST_ALONE)
    kernel |= {"role": "known_good", "replicas": replicas, "zones": kernel["zones"][:replicas]}
    homes = [{**one, "kernel": home} for one in spec["pool"]["home"]]
    spec["pool"] = {"kernels": [kernel], "home": homes}
    spec["faults"], spec["changes"] = [], []
    spec["workload"].pop("declared", None)


def _mix_of(spec: Spec, slices: list[str]) -> list[Spec]:
    mix = [one for one in spec["workload"]["slice_mix"] if one["slice"] in slices]
    total = sum(one["share"] for one in mix)
    return [{**one, "share": one["share"] / total} for one in mix]


@lru_cache(maxsize=8)
def _read(uri: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(resolve_uri(uri, "").read_text(encoding="utf-8"))
    return document


def _written_profile(folder: Path, uri: str, factors: dict[str, float]) -> Path:
    """The profile at ``uri`` on an engine whose step time has other coefficients."""
    document = _read(uri)
    path = folder / Path(uri).name
    told = document["spec"]["step_time"]
    before = np.array([told[key] for key in factors])
    after = before * np.array(list(factors.values()))
    points = [_slower(point, before, after) for point in told["points"]]
    step_time = {**told, **dict(zip(factors, after.tolist(), strict=True)), "points": points}
    spec = _with_whole_uris({**document["spec"], "step_time": step_time})
    path.write_text(yaml.safe_dump({**document, "spec": spec}), encoding="utf-8")
    return path


def _slower(point: Spec, before: np.ndarray, after: np.ndarray) -> Spec:
    """A measured step of ``point``'s batch on the other engine, with its former relative error."""
    batch = [1.0, point["prefill_tokens"], point["decode_sequences"], point["context_tokens"]]
    return {
        **point,
        "measured_ms": float(point["measured_ms"] * np.dot(batch, after) / np.dot(batch, before)),
    }


def _with_whole_uris(node: Any) -> Any:
    """``node`` with files beside the shipped profiles named by their path in the library."""
    if isinstance(node, dict):
        return {
            key: f"{LIBRARY}profiles/{inner}" if key == "uri" and inner else _with_whole_uris(inner)
            for key, inner in node.items()
        }
    return [_with_whole_uris(inner) for inner in node] if isinstance(node, list) else node


def _written_contract(folder: Path, rng: np.random.Generator, slices: list[str]) -> Path:
    """The shipped contract of ``slices`` alone, with drawn objectives."""
    document = _read(SERVING_POOL)
    spec = document["spec"]
    slo = {key: value * float(rng.choice(times)) for key, (value, times) in OBJECTIVES.items()}
    default = slices[int(rng.integers(len(slices)))]
    promised = [
        {"name": one["name"], "priority": one["priority"], "slo": {**slo}, "default": one["name"] == default}
        for one in spec["slices"]
        if one["name"] in slices
    ]
    clauses = [one for clause in spec["clauses"] for one in _clause_of(clause, slices, slo)]
    path = folder / "contract.yaml"
    changed = {**document, "spec": {**spec, "slices": promised, "clauses": clauses}}
    path.write_text(yaml.safe_dump(changed), encoding="utf-8")
    return path


def _clause_of(clause: Spec, slices: list[str], slo: dict[str, float]) -> list[Spec]:
    """``clause`` on those of ``slices`` that it names, with their objective; none if it names no other."""
    if clause["id"].endswith(LONG):
        return []
    for begins, objective in PROMISED.items():
        if clause["id"].startswith(begins):
            rest = {key: value for key, value in clause.items() if key != "slices"}
            return [{**rest, "threshold": slo[objective]}]
    if "slices" not in clause:
        return [clause]
    named = [one for one in clause["slices"] if one in slices]
    return [{**clause, "slices": named}] if named else []


def main(
    first: Annotated[int, typer.Argument(help="Number of the first world.")] = 0,
    last: Annotated[int, typer.Argument(help="Number after the last one.")] = 0,
    policies: Policies = "sequential,hysteresis",
    seeds: Seeds = 2,
    only: Only = "",
    alone: Annotated[bool, typer.Option("--alone", help="One kernel, overloaded, and no fault.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print a line for every world, and one for every policy over all of them."""
    run = WorldsRun.of("alone" if alone else "foreign", range(first, last), only, policies, seeds)
    with tempfile.TemporaryDirectory() as folder:
        worlds = (foreign_world(number, Path(folder), alone=alone) for number in run.numbers)
        print_worlds(run, worlds, as_json=as_json)


if __name__ == "__main__":
    typer.run(main)
