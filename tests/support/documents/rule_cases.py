"""Common helpers for tests of rules: a valid document, one changed place, the resulting problems."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import yaml

from contracts.errors import DocumentError
from contracts.loading.loader import load_text

Tree = dict[str, Any]
Change = Callable[[Any], object]


def problems(document: Tree, change: Change = lambda spec: None) -> list[tuple[str, str]]:
    """(path, message) of each problem of ``document`` after ``change`` of its spec."""
    changed = copy.deepcopy(document)
    change(changed["spec"])
    try:
        load_text(dump(changed), "made.yaml")
    except DocumentError as error:
        return [(problem.path, str(problem)) for problem in error.problems]
    return []


def dump(tree: Tree) -> str:
    """``tree`` as YAML without aliases."""

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    text: str = yaml.dump(tree, Dumper=Plain, sort_keys=False)
    return text


def fault(**fields: object) -> Tree:
    """A valid fault of the synthetic pool, with changes."""
    plain: Tree = {
        "name": "w4",
        "kind": "requantise",
        "condition": "requantise-w4",
        "target": {"kernel": "bf16"},
        "onset_s": 5.0,
    }
    return {key: value for key, value in (plain | fields).items() if value is not None}
