"""The ``selvage`` command line: one root, whose subcommands are imported only when they run.

Exit codes: 0 done or passed; 1 a negative verdict, and nothing else; 2 bad input, a missing part, or output
that cannot be written; 3 inconclusive (too few samples); 4 an invalid drill; 70 a bug, with a crash report;
129, 130, 143 ended by HUP, Ctrl-C, TERM; 141 the reader of the output went away. ``SELVAGE_DEBUG=1`` shows
tracebacks (``scripts.guard``).
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from contracts.errors import MissingPartError, Problem, SelvageError, printable
from scripts import cli
from scripts.guard import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_PIPE, exit_code_of, run_guarded, write_what_can_be

#: Command -> (modules of this package that provide it, line shown by ``selvage --help``).
COMMANDS: dict[str, tuple[tuple[str, ...], str]] = {
    "contract": (
        ("contract", "evaluate", "init"),
        "Write, validate, evaluate, propose, bound and register kernel contracts.",
    ),
    "profile": (("profile",), "Measure kernels against the reference kernel."),
    "kld": (("kld",), "Compare a running server with its reference: KL per slice, and a verdict."),
    "fleet": (("fleet",), "Run vLLM servers of different kernels behind Envoy on this machine."),
    "drill": (("drill",), "Inject faults under load, undo them, and judge what happened."),
    "parity": (("parity",), "Compare a live replica with the simulator, number by number."),
    "run": (("run",), "Drive live servers, or observe them and report what would be moved."),
    "replay": (("replay",), "Replay a decision log, with its own or another policy or contract."),
    "simulate": (("simulate",), "Run one scenario on the simulated fleet."),
    "explain": (("explain",), "Explain the decisions of a tick or of an incident."),
    "e5": (("e5",), "Compare policies under injected faults (experiment E5)."),
    "policy": (
        ("policy", "artifact", "suite", "route"),
        "Certify routing policies on suites, and show, export and evaluate their artefacts.",
    ),
    "tune": (("tune",), "Search the settings of a baseline on training episodes."),
    "train": (("train",), "Train routing policies by a recipe, with several seeds."),
    "bench": (("bench",), "Run a benchmark and print its figures."),
    "offline": (("offline",), "Record logs of incidents; train and evaluate policies from logs."),
    "oci": (("oci",), "Fetch artefacts that documents name from OCI registries."),
    "kubernetes": (
        ("kubernetes",),
        "Write custom resources, run the operator and its drills on Kubernetes.",
    ),
    "status": (("cluster",), "Show which policy drives where on Kubernetes, and what needs attention."),
    "pin": (("cluster",), "Break-glass on Kubernetes: put rows of the table in force for so long."),
    "unpin": (("cluster",), "End a pin before its time."),
    "freeze": (("cluster",), "Break-glass on Kubernetes: hold the weights of a policy for so long."),
    "unfreeze": (("cluster",), "End a freeze or a pin before its time."),
    "doctor": (("doctor",), "Report what is installed, shadowed or missing."),
}


#: Commands that import their own module alone and not those of the commands beside them: a gate of
#: continuous integration waits for every import.
ALONE = {("contract", "evaluate"): ("evaluate",)}


#: Exceptions that Typer raises for arguments that fit no command; newer versions bundle their own click.
_USAGE: Any = typer.BadParameter.__base__
#: Attribute of a run's context: its errors are requested as JSON too.
_AS_JSON = "selvage.as_json"


def collect(modules: tuple[str, ...]) -> typer.Typer:
    """One Typer with the commands of all ``modules``.

    A module provides ``register(app)`` or an ``app``. Of several modules, missing ones are left out as long
    as one exists.
    """
    root = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    found = 0
    for name in (f"{cli.__name__}.{module}" for module in modules):
        try:
            module: Any = import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            continue
        found += 1
        _adopt(root, module)
    if not found:
        raise MissingPartError(f"this build of selvage-fleet has no {modules[0]}; install a newer version")
    return root


def command_of(name: str, modules: tuple[str, ...]) -> Any:
    """The command ``name``, of ``modules``: their group, or the one of their commands that has this name."""
    found: Any = typer.main.get_command(collect(modules))
    return getattr(found, "commands", {}).get(name, found)


def _adopt(root: typer.Typer, module: Any) -> None:
    if hasattr(module, "register"):
        module.register(root)
        return
    root.registered_commands += module.app.registered_commands
    root.registered_groups += module.app.registered_groups
    root.registered_callback = module.app.registered_callback or root.registered_callback
    root.info.help = module.app.info.help


class LazyGroup(TyperGroup):
    """Root group: names and help lines come from ``COMMANDS``; a module is imported when it runs."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 (signature of the base class)
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Stub that carries the help line; enough for ``--help`` and for completion."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name][1])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The real command for the first of ``args``."""
        ctx.meta[_AS_JSON] = "--json" in args
        if args and args[0] in COMMANDS:
            from scripts.cli.options import read_values  # no command's module for ``--help``

            modules = ALONE.get((args[0], args[1] if len(args) > 1 else ""), COMMANDS[args[0]][0])
            command = command_of(args[0], modules)
            command.help = command.help or COMMANDS[args[0]][1]
            command.name = args[0]
            read_values(command)
            return args[0], command, args[1:]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; turn deliberate errors into a message and an exit code.

        With ``--json`` standard output gets an object as well (``error_json``). Other exceptions go to
        ``scripts.guard``, past Typer, which would exit with code 1.
        """
        try:
            return super().invoke(ctx)
        except _USAGE as error:
            _tell_json(ctx, error.format_message(), EXIT_BAD_INPUT)
            raise
        except KeyboardInterrupt as error:
            notes = "; ".join(getattr(error, "__notes__", ()))
            typer.echo(f"interrupted: {notes}" if notes else "interrupted", err=True)
            raise typer.Exit(exit_code_of(error)) from None
        except EOFError as error:
            raise RuntimeError("a file ended too early") from error
        except (SelvageError, ModuleNotFoundError, OSError) as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise typer.Exit(EXIT_PIPE) from None
            message, code = explained(error)
            if not message:
                raise
            if os.environ.get("SELVAGE_DEBUG"):
                traceback.print_exc()
            _tell_json(ctx, message, code, getattr(error, "problems", ()))
            typer.echo(f"error: {message}", err=True)
            raise typer.Exit(code) from None


def _tell_json(ctx: Any, message: str, code: int, problems: Sequence[Problem] = ()) -> None:
    """Print ``error_json`` on standard output if ``--json`` was given."""
    if ctx.meta.get(_AS_JSON):
        typer.echo(error_json(message, code, problems))


def error_json(message: str, code: int, problems: Sequence[Problem] = ()) -> str:
    """Output of a command with ``--json`` if it has no result, with sorted keys.

    outcome: Failed if something was judged, Error otherwise. error: the message on standard error. problems:
    each reason separately, if a document was refused.
    """
    from contracts.loading.files import json_text  # only needed after a failure

    outcome = "Failed" if code == EXIT_FAILED else "Error"
    told = [asdict(problem) for problem in problems]
    return json_text({"outcome": outcome, "exit_code": code, "error": message, "problems": told}, indent=2)


def explained(error: SelvageError | ModuleNotFoundError | OSError) -> tuple[str, int]:
    """Message and exit code of a deliberate error, a file or a missing module; empty for a bug."""
    if isinstance(error, OSError):
        if error.errno == errno.ENOENT and error.filename is None and _is_nowhere():
            return "the working directory was deleted; go to another one (cd)", EXIT_BAD_INPUT
        named = error.filename is not None and error.strerror is not None
        return printable(f"{error.filename}: {error.strerror}") if named else "", EXIT_BAD_INPUT
    if isinstance(error, SelvageError):
        lines = [printable(line) for line in str(error).split("\n")]
        return "\n".join(lines), EXIT_FAILED if error.judgement else EXIT_BAD_INPUT
    from scripts.setup.doctor import TOP_LEVEL, command_for

    name = (error.name or "").partition(".")[0]
    command = command_for(name) or "pip install --upgrade selvage-fleet"
    return (
        "" if not name or name in TOP_LEVEL else f"{name} is not installed; run: {command}"
    ), EXIT_BAD_INPUT


def _is_nowhere() -> bool:
    """Whether the working directory no longer exists."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Keep a fleet of LLM servers inside a written kernel contract.",
    epilog="Exit codes: 0 done or passed, 1 failed, 2 bad input, 3 inconclusive, 70 a bug, 130 interrupted.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("selvage-fleet"))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Keep a fleet of LLM servers inside a written kernel contract."""


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        write_what_can_be(stream)
    sys.exit(run_guarded(lambda: app(prog_name="selvage")))


if __name__ == "__main__":
    main()
