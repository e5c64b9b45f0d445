"""Options of ``selvage profile``: records, the servers in it, and the command that repeats it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from contracts.errors import refusal
from contracts.regular_files import read_regular_text

if TYPE_CHECKING:
    from live.measure.endpoint import Declared, Endpoint
    from live.measure.measurement import ServerCondition

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")


#: Longest time for timing steps, s, its target for the relative half-width, and the most concurrent
#: sequences that it sends.
STEP_SECONDS, STEP_TARGET, STEP_SEQUENCES = 300.0, 0.15, 16


class BackendName(StrEnum):
    """The engine that runs the kernels."""

    VLLM = "vllm"
    TORCH = "torch"
    OPENAI = "openai"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRequest:
    """The measured running server, and the servers of its conditions; they share the key."""

    url: str = ""
    model: str = ""
    name: str = ""
    dtype: str = ""
    quantization: str = ""
    kv_cache_dtype: str = ""
    key_env: str = ""
    key_file: Path | None = None
    ca_file: Path | None = None
    conditions: tuple[str, ...] = ()
    """``NAME=URL`` each."""
    step_sequences: int = STEP_SEQUENCES
    step_seconds: float = STEP_SECONDS
    """No request that times steps begins after this time."""
    step_target: float = STEP_TARGET
    """Timing ends once every prediction is known to this share."""
    step_process: int = 0
    """Process on this machine whose CPU time is the clock of steps; 0: wall time."""

    @property
    def endpoint(self) -> Endpoint:
        """The server itself."""
        return self._at(self.url)

    @property
    def declared(self) -> Declared:
        """The operator's declarations about it; DocumentError for a name that no document may have."""
        from live.measure.endpoint import Declared

        if self.name:
            _named("--name", self.name)
        return Declared(
            name=self.name,
            dtype=self.dtype,
            quantization=self.quantization,
            kv_cache_dtype=self.kv_cache_dtype,
        )

    def servers(self) -> tuple[ServerCondition, ...]:
        """The badly configured servers."""
        from live.measure.measurement import ServerCondition

        parts = [one.partition("=") for one in self.conditions]
        for name, _, url in parts:
            if not url:
                raise refusal("--condition", "NAME=URL", name, "e.g. kv-fp8=http://HOST:8001")
            _named("--condition", name)
        return tuple(ServerCondition(name=name, endpoint=self._at(url)) for name, _, url in parts)

    def _at(self, url: str) -> Endpoint:
        from live.measure.endpoint import Endpoint

        if not url:
            raise refusal("--endpoint", "the URL of a running server", "none", "add --endpoint")
        key = read_key("--api-key", self.key_env, self.key_file)
        return Endpoint(url=url, model=self.model, api_key=key, ca_file=self.ca_file)

    def words(self) -> list[str]:
        """The options that repeat it; never the key."""
        given = {
            "--endpoint": self.url,
            "--endpoint-model": self.model,
            "--name": self.name,
            "--dtype": self.dtype,
            "--quantization": self.quantization,
            "--kv-cache-dtype": self.kv_cache_dtype,
            "--api-key-env": self.key_env,
            "--api-key-file": self.key_file,
            "--ca-file": self.ca_file,
            "--step-process": self.step_process,
            "--step-seconds": "" if self.step_seconds == STEP_SECONDS else f"{self.step_seconds:g}",
            "--step-target": "" if self.step_target == STEP_TARGET else f"{self.step_target:g}",
        }
        words = _given(given) + [word for one in self.conditions for word in ("--condition", one)]
        if self.url or self.step_sequences != STEP_SEQUENCES:
            words += ["--step-sequences", str(self.step_sequences)]
        return words


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRequest:
    """Source of the reference's log-probabilities: a server, or the checkpoint on this machine."""

    url: str = ""
    model: str = ""
    key_env: str = ""
    key_file: Path | None = None
    ca_file: Path | None = None
    store: Path | None = None
    device_map: str = ""

    @property
    def endpoint(self) -> Endpoint | None:
        """The server, if one was named."""
        from live.measure.endpoint import Endpoint

        if not self.url:
            return None
        key = read_key("--reference-key", self.key_env, self.key_file)
        return Endpoint(url=self.url, model=self.model, api_key=key, ca_file=self.ca_file)

    def words(self) -> list[str]:
        """The options that repeat it; never the key."""
        return _given(
            {
                "--reference-endpoint": self.url,
                "--reference-model": self.model,
                "--reference-key-env": self.key_env,
                "--reference-key-file": self.key_file,
                "--reference-store": self.store,
                "--device-map": self.device_map,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """The options of one ``selvage profile`` run."""

    model: str
    kernels: tuple[str, ...]
    backend: BackendName
    server: ServerRequest
    reference: ReferenceRequest
    prompts: Path | None
    faults: bool | None
    doses: tuple[str, ...]
    repeats: int
    step_times: bool
    step_half_width: float
    out: Path
    force: bool
    seed: int

    def command(self, kernel: str) -> str:
        """The command that measures ``kernel`` alone in the same way."""
        words = ["selvage", "profile", "--kernel", kernel, "--backend", self.backend.value]
        words += _given({"--model": self.model, "--prompts": self.prompts})
        words += [*self.server.words(), *self.reference.words()]
        if self.faults is not None:
            words.append("--faults" if self.faults else "--no-faults")
        words += [] if self.step_times else ["--no-step-times"]
        words += [] if self.step_half_width == 0.5 else ["--step-half-width", f"{self.step_half_width:g}"]
        words += [word for name in self.doses for word in ("--dose", name)]
        words += ["--repeats", str(self.repeats), "--seed", str(self.seed), "--out", str(self.out)]
        return shlex.join(words)


_KEY_BYTES = 2**16


def read_key(option: str, variable: str, file: Path | None) -> str:
    """The API key in an environment variable or a file; empty if neither is named."""
    if variable and file is not None:
        told = f"{variable} and {file}"
        raise refusal(f"{option}-env, {option}-file", "one key", told, "leave out one of the two")
    if variable:
        if variable not in os.environ:
            message = f"{variable} is not set"
            raise refusal(f"{option}-env", "a variable with the key", message, "export it")
        return _one_key(f"${variable}", os.environ[variable].strip())
    if file is None:
        return ""
    return _one_key(str(file), read_regular_text(file, _KEY_BYTES, f"correct {option}-file").strip())


def _one_key(place: str, key: str) -> str:
    """``key`` if a header can carry it; an error never shows it."""
    if not key or not all("!" <= sign <= "~" for sign in key):
        message = "nothing" if not key else "blanks, line ends, or letters that are not ASCII"
        raise refusal(place, "one line with the key, of ASCII", message, "correct it")
    return key


def _named(option: str, name: str) -> None:
    """DocumentError if ``name`` cannot be a document's name."""
    if not _NAME.fullmatch(name):
        expected = "small letters, digits, '.' and '-', at most 63, a letter or digit at both ends"
        raise refusal(option, expected, repr(name), "choose such a name")


def _given(options: Mapping[str, object]) -> list[str]:
    """Words of the options that have a value."""
    return [word for option, value in options.items() if value for word in (option, str(value))]
