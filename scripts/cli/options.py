"""Commands with many options take them as one record: fields with their types, defaults and help; and options
that several commands share.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import typer

#: More seeds than this are a typing error, and larger ones do not fit a double.
MOST_SEEDS, LARGEST_SEED = 100_000, 2**53 - 1

#: Allowed names of a document that also names its files.
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_Record = TypeVar("_Record")


def options(record: type[_Record]) -> Callable[[Callable[[_Record], None]], Callable[..., None]]:
    """Make a command of a function of one ``record``, a dataclass whose fields are annotated for Typer.

    Typer reads a command's signature, so the command gets one parameter per field, in the order of the
    fields; the function sees the record alone.
    """

    def command_of(function: Callable[[_Record], None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(**given: Any) -> None:
            function(record(**given))

        parameters = _parameters(record)
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        vars(command)["__signature__"] = inspect.Signature(parameters)
        return command

    return command_of


def name_of_document(value: str) -> str:
    """Callback of an option that names a document and its files: BadParameter before any work begins."""
    if _NAME.fullmatch(value) is None:
        raise typer.BadParameter(
            "a name of small letters, digits, '.' and '-' is needed, at most 63, a letter or digit at both"
            f" ends, got {value!r}"
        )
    return value


def read_values(command: Any) -> None:
    """Make ``command`` and its subcommands refuse NaN and infinities, which option ranges let through, and
    expand ``~`` at the start of a path: for ``--out=~/x`` no shell does it.
    """
    for one in getattr(command, "commands", {}).values():
        read_values(one)
    for parameter in command.params:
        parameter.callback = _read(parameter.callback)


def _read(then: Callable[..., Any] | None) -> Callable[..., Any]:
    """Callback of an option: BadParameter for a number that is not finite, then its previous callback."""

    def read(ctx: Any, param: Any, value: Any) -> Any:
        several = isinstance(value, list | tuple)
        for each in value if several else (value,):
            if isinstance(each, float) and not math.isfinite(each):
                raise typer.BadParameter(f"a finite number is needed, got {each}", ctx=ctx, param=param)
        found = type(value)(_at_home(each) for each in value) if several else _at_home(value)
        return found if then is None else then(ctx, param, found)

    return read


def _at_home(value: Any) -> Any:
    """``value`` with a leading ``~/`` expanded, if it is a path or a text."""
    if not isinstance(value, str | Path) or not str(value).startswith("~/"):
        return value
    return type(value)(os.path.expanduser(value))


def _parameters(record: type[Any]) -> list[inspect.Parameter]:
    """One keyword parameter per field of ``record``."""
    hints = get_type_hints(record, include_extras=True)
    return [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=hints[one.name],
            default=inspect.Parameter.empty if one.default is MISSING else one.default,
        )
        for one in fields(record)
    ]


NAMESPACE = Annotated[
    str, typer.Option("--namespace", envvar="SELVAGE_NAMESPACE", help="Namespace of the resources.")
]
LOG_FORMAT = Annotated[
    Literal["json", "text"],
    typer.Option("--log-format", help="Lines on stderr: json for machines, text for people."),
]
LOG_LEVEL = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option("--log-level", help="What is told; libraries' own lines from warning on."),
]
#: Options of probes and of returns that the live controller and the operator share.
GENERATION_TOKENS = Annotated[
    float,
    typer.Option(min=0.1, help="Tokens per second and replica of probes that generate, where asked for."),
]
PROBE_LIMIT = Annotated[float, typer.Option(min=0.1, help="Time limit of a probe, s.")]
SCRAPE_TIMEOUT = Annotated[
    float,
    typer.Option(min=0.1, max=60.0, help="Time limit of a scrape, s; the next begins when all have ended."),
]
VERIFY_PROBES = Annotated[
    int,
    typer.Option(
        min=0, help="Generation probes that must agree before a quarantined replica returns; 0: none."
    ),
]
READMIT_OVER = Annotated[
    float, typer.Option(min=0.0, help="Seconds over which its traffic returns, by steps.")
]
