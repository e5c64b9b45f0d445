"""Commands and links on the pages: targets, commands and options exist, links resolve."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from scripts.cli.main import COMMANDS, app, command_of
from tests.support.paths import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")])
BLOCK = re.compile(r"^```(\S+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)[^)]*\)")
PAGE_IDS = [str(page.relative_to(ROOT)) for page in PAGES]
#: A command and its output, shortened: lines of ``...`` stand for omitted parts.
SHOWN = re.compile(r"^```sh shown\n(.*?)^```\n+```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(
    r"`((?:contracts|controller|simulator|faults|policies|live|k8s|scripts|tests)[./][\w./-]+)"
)
#: Parts of a name that stand for any.
ANY = re.compile(r"\b[A-Z]{3,}\b")


def command_lines(page: Path, tag: str = "") -> list[str]:
    """Lines of the ``sh`` blocks of ``page`` whose info string ends in ``tag``, continuations joined."""
    blocks = [body for kind, info, body in BLOCK.findall(page.read_text()) if kind == "sh" and tag in info]
    joined = "\n".join(blocks).replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def selvage_command(words: list[str]) -> tuple[Any, list[str]]:
    """The command object that ``selvage words`` reaches, and the words left for it."""
    root: Any = typer.main.get_command(app)
    if not words or words[0] not in COMMANDS:
        return root, words
    command: Any = command_of(words[0], COMMANDS[words[0]][0])
    rest = words[1:]
    while rest and rest[0] in getattr(command, "commands", {}):
        command, rest = command.commands[rest[0]], rest[1:]
    return command, rest


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_commands_of_the_pages_exist(page: Path) -> None:
    """Every ``selvage`` line names a command and options that exist; every ``make`` line a target."""
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in command_lines(page):
        words = shlex.split(line)
        if words[0] == "make":
            assert {w for w in words[1:] if "=" not in w} <= targets, line
        if words[0] != "selvage":
            continue
        command, rest = selvage_command(words[1:])
        assert not getattr(command, "commands", None) or not rest or rest[0].startswith("-"), line
        known = {
            "--help",
            *(o for parameter in command.params for o in parameter.opts + parameter.secondary_opts),
        }
        given = {word.split("=")[0] for word in rest if word.startswith("-")}
        assert given <= known, f"{line}: unknown {given - known}"


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links of a page point to existing files of the project, and to existing headings."""
    for target in LINK.findall(page.read_text()):
        name, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = page.parent / name if name else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in headings(file), f"{page.name}: {target}"


def headings(page: Path) -> set[str]:
    """Anchors of the headings of ``page``, as they are made of its words."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in found}


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_names_on_the_pages_exist(page: Path) -> None:
    """Every path or module that a page names in code letters exists."""
    missing = [
        name for name in NAMED.findall(page.read_text()) if not ANY.search(name) and not is_there(name)
    ]
    assert not missing, f"{page.name}: {missing}"


def is_there(name: str) -> bool:
    """Whether ``name`` is a path, a module, or a name that a module defines."""
    if "/" in name:
        return (ROOT / name).exists()
    parts = name.rstrip(".").split(".")
    for length in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:length])
        if place.with_suffix(".py").is_file() or (place.is_dir() and length == len(parts)):
            return length == len(parts) or parts[length] in defined(place.with_suffix(".py"))
        if (place / "__init__.py").is_file():
            return parts[length] in defined(place / "__init__.py")
    return False


def defined(module: Path) -> set[str]:
    """Names that ``module`` defines or imports, without running it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.Name(ctx=ast.Store()):
                found.add(node.id)
            case ast.alias():
                found.add(node.asname or node.name)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [p for p in PAGES if SHOWN.search(p.read_text())], ids=lambda page: page.name
)
def test_shown_output_is_what_the_command_prints(page: Path, tmp_path: Path) -> None:
    """A block marked ``sh shown`` prints every part of the block below it, whole and in that order."""
    for command, shown in SHOWN.findall(page.read_text()):
        printed = run_selvage(shlex.split(command.replace("\\\n", " "))[1:], tmp_path).stdout
        for part in shown.split("...\n"):
            assert part in printed, part
            printed = printed[printed.index(part) + len(part) :]


PROGRAMS = [
    (page, body)
    for page in PAGES
    for kind, info, body in BLOCK.findall(page.read_text())
    if kind == "python" and "run" in info
]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "program"), PROGRAMS, ids=[page.name for page, _ in PROGRAMS])
def test_programs_on_the_pages_run(page: Path, program: str, tmp_path: Path) -> None:
    """A block marked ``python run`` runs unchanged, outside the project's folder."""
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, f"{page.name}\n{done.stderr}"


def run_selvage(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """``selvage`` with ``words``, in ``folder``; it must exit with 0."""
    code = "from scripts.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"selvage {shlex.join(words)}\n{done.stderr}"
    return done


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_marked_blocks_run(page: Path, tmp_path: Path) -> None:
    """Blocks marked ``sh run`` run in an empty folder, line by line, and each line exits with 0."""
    for line in command_lines(page, tag="run"):
        words = shlex.split(line)
        assert words[0] == "selvage", f"only selvage lines are run: {line}"
        run_selvage(words[1:], tmp_path)
