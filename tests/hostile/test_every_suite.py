"""Every file that a shipped suite refers to is covered by a hash that its results print."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from contracts.loading.uris import resolve_uri
from tests.support.paths import ROOT

LIBRARY = ROOT / "contracts" / "library"
SUITES = [
    path
    for path in sorted((LIBRARY / "suites").glob("*.yaml"))
    if yaml.safe_load(path.read_text())["kind"] == "Suite"
]
#: Keys with file names as values, in documents of any kind.
NAMING = {"uri", "pool_uri", "trace_uri", "contract", "profile", "base", "training_base"}


def named(value: object) -> set[str]:
    """Every text under a key that names files."""
    if isinstance(value, list):
        return {uri for inner in value for uri in named(inner)}
    if not isinstance(value, dict):
        return set()
    own = {inner for key, inner in value.items() if key in NAMING and isinstance(inner, str)}
    return own.union(*(named(inner) for inner in value.values()))


def led_to(path: Path) -> set[Path]:
    """All files that the document at ``path`` names, and those that they name."""
    found, todo = set[Path](), [path]
    while todo:
        at = todo.pop()
        if at in found:
            continue
        found.add(at)
        uris = named(yaml.safe_load(at.read_text())) if at.suffix == ".yaml" else set()
        places = [resolve_uri(uri, at) for uri in uris if "." in uri]
        todo += [one.resolve() for one in places if one.is_file()]
    return found


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_a_suite_leads_to_files_of_hashed_kinds_alone(path: Path) -> None:
    """Documents, which results hash, and files that profiles pin by sha256: no others are referred to."""
    reached = led_to(path.resolve())
    kinds = {yaml.safe_load(one.read_text())["kind"] for one in reached if one.suffix == ".yaml"}
    assert kinds <= {"Suite", "Scenario", "KernelPool", "KernelContract", "KernelProfile"}
    assert {one.suffix for one in reached} <= {".yaml", ".npz", ".jsonl", ".csv", ".f32", ".safetensors"}
