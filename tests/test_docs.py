"""What the pages say can be typed: targets, commands and options exist, links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from scripts.selvage import COMMANDS, app, collect

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")])
BLOCK = re.compile(r"^```(\S+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
PAGE_IDS = [str(page.relative_to(ROOT)) for page in PAGES]


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
    command: Any = typer.main.get_command(collect(COMMANDS[words[0]][0]))
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
    """Relative links of a page point to files of the project."""
    for target in LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_marked_blocks_run(page: Path, tmp_path: Path) -> None:
    """Blocks marked ``sh run`` run in an empty folder, line by line, and each line exits with 0."""
    for line in command_lines(page, tag="run"):
        words = shlex.split(line)
        assert words[0] == "selvage", f"only selvage lines are run: {line}"
        code = "from scripts.selvage import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, *words[1:]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
