"""The field's words: what `docs/words.md` calls former stands in no name, key, option, document or page.

Words that are plain English beside their former meaning are looked for in names alone, and those that have a
meaning of their own here (a unit of measurement, a floor, what was lost, a paired difference) nowhere.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support.paths import FOLDERS, ROOT

#: Former words, and what the field says. They stand nowhere, in names as in sentences.
FORMER = {
    "policy configuration": "arm arms",
    "failover target": "refuge refuges",
    "fail over, failover": "flee flees fled fleeing",
    "peers": "sibling siblings",
    "borrowed view": "lent",
    "raise an alarm, raised": "rang rung",
    "proposal": "wish wishes",
    "overflow": "spill spills spilled spilling",
    "allocate": "pour pours poured pouring trickles",
    "minimum share": "trickle",
    "epsilon": "crumb crumbs",
    "change-point prior": "suspicion suspicions suspected",
    "privileged teacher": "insight insights",
    "synthetic fleet": "rehearsal rehearsals",
    "visible faults": "loud",
}
#: Words whose everyday meaning a sentence may have, and a name may not.
FORMER_IN_NAMES = {
    "accumulate, update": "fold folds",
    "receive": "hear hears heard",
    "lowered threshold": "suspect suspects",
    "pooled over slices": "anywhere",
    "unhealthy": "ill",
    "without a certified target": "dark",
    "pending move": "owed",
    "behaviour cloning": "cloning",
    "failover": "flight flights",
    "target": "goal goals",
}
#: Whole names that have a former word in another meaning, or that cannot be renamed yet, and why. Only fewer.
ALLOWED = {
    "arm64": "an architecture of processors",
    "fold": "rich's name for wrapping; what a reader may open in a report; the name of a random stream",
    "folds": "parts of a report that a reader may open",
    "_Flight": "a probe in flight",
    "flight": "a probe in flight",
    "goal": "inside the injected files, whose bytes manifests pin; goes when these change",
    "requantise-6-bits-refuge": "a scenario's name draws its random numbers; its suite is registered by hash",
    "sibling_reason": "issued certificates hash it among the rules of the learned policy",
    "ill": "a token of the reference model's tokenizer",
    "since_ill_s": "an input of the learned policy; goes with the next network",
}
#: Expressions of the field that hold one.
EXPRESSIONS = re.compile(r"in[-_ ](mid[-_])?flight|behaviou?r[-_ ]?cloning", re.IGNORECASE)
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
WORD = re.compile(r"\b[A-Za-z]+\b")
#: What any name consists of.
TOKEN = re.compile(r"\w+")
#: A string that is a key, a value of a choice, or an option.
KEY = re.compile(r"(--)?[a-z][a-z0-9]*([_-][a-z0-9]+)*")
#: Pages that speak of former names.
HISTORY = {"CHANGELOG.md", "docs/words.md", "tests/project/test_words.py"}
#: Their bytes are registered by hash, comments and all.
REGISTERED = "contracts/library/suites/"


def known(words: dict[str, str]) -> dict[str, str]:
    """What to say in the place of each single word."""
    return {word: said for said, former in words.items() for word in former.split()}


IN_TEXT = known(FORMER)
IN_NAMES = IN_TEXT | known(FORMER_IN_NAMES)


def place(path: Path) -> str:
    """Path relative to the project."""
    return path.relative_to(ROOT).as_posix()


def files(*endings: str) -> list[Path]:
    """Files of the sources and pages with such endings, those that tell of history apart."""
    found = [
        p for folder in (*FOLDERS, "tests", "docs") for e in endings for p in (ROOT / folder).rglob(f"*{e}")
    ]
    found += [p for e in endings for p in ROOT.glob(f"*{e}")]
    return sorted(p for p in set(found) if place(p) not in HISTORY and "__pycache__" not in p.parts)


def names_of_node(node: ast.AST) -> Iterator[str]:
    """The names and the key-like strings that one node of a syntax tree holds."""
    for field in ("name", "arg", "id", "attr", "asname"):
        value = getattr(node, field, None)
        if isinstance(value, str):
            yield value
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and KEY.fullmatch(node.value):
        yield node.value


def keys_of(tree: Any) -> Iterator[str]:
    """Every key of a document, and every value that reads like one."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield str(key)
            yield from keys_of(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from keys_of(value)
    elif isinstance(tree, str) and KEY.fullmatch(tree):
        yield tree


@cache
def names(path: Path) -> frozenset[str]:
    """All names of a source or a document; none where nothing in it could be one of a former word."""
    text = path.read_text()
    if not any(map(former, {path.stem, *TOKEN.findall(text)})):
        return frozenset()
    if path.suffix == ".py":
        nodes = ast.walk(ast.parse(text))
        return frozenset({path.stem, *(name for node in nodes for name in names_of_node(node))})
    documents = [json.loads(text)] if path.suffix == ".json" else yaml.load_all(text, yaml.CSafeLoader)
    return frozenset(key for one in documents for key in keys_of(one))


def former(name: str) -> list[str]:
    """What a name says in a former word, and how the field says it; a test's name is a sentence."""
    words = IN_TEXT if name.startswith("test_") else IN_NAMES
    parts = [part.lower() for part in PART.findall(EXPRESSIONS.sub("", name))]
    return [f"{part}: say {words[part]}" for part in parts if part in words]


def test_names_keys_and_options_are_in_the_words_of_the_field() -> None:
    """No identifier, module, key or option has a former word in it, but those that are allowed by name."""
    found: dict[str, list[str]] = {}
    for path in files(".py", ".yaml", ".json"):
        for name in names(path):
            if said := former(name):
                found.setdefault(name, []).append(f"{place(path)} ({'; '.join(said)})")
    assert not {name: where for name, where in found.items() if name not in ALLOWED}
    assert not ALLOWED.keys() - found.keys(), "gone: take them out of the list"


def test_sentences_are_in_the_words_of_the_field() -> None:
    """No page, docstring, comment or text of a document has a former word."""
    found = []
    for path in (p for p in files(".py", ".md", ".yaml", ".j2") if not place(p).startswith(REGISTERED)):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            words = {word.lower() for word in WORD.findall(EXPRESSIONS.sub("", line))} & IN_TEXT.keys()
            found += [f"{place(path)}:{number} {word}: say {IN_TEXT[word]}" for word in words]
    assert not found


def test_the_page_of_words_has_every_former_one() -> None:
    """`docs/words.md` tells a reader of older results what each former word is now."""
    page = (ROOT / "docs" / "words.md").read_text().split("## Formerly")[1].split("\n## ")[0]
    told = {word.lower() for word in WORD.findall(page)}
    stems = {former.split()[0] for former in (FORMER | FORMER_IN_NAMES).values()}
    assert not {stem for stem in stems if stem not in told and stem.rstrip("s") not in told}
