"""Options of commands that run until a signal, about their logs."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

LOG_FORMAT = Annotated[
    Literal["json", "text"],
    typer.Option("--log-format", help="Lines on stderr: json for machines, text for people."),
]
LOG_LEVEL = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option("--log-level", help="What is told; libraries' own lines from warning on."),
]
