"""kubectl against an API server of the tests: folders by kustomize, without kinds that the server lacks."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.paths import ROOT

Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubectl:
    """kubectl with this configuration, in this folder."""

    kubeconfig: Path
    folder: Path

    def run(self, *arguments: str, stdin: str = "") -> Done:
        """One call."""
        return self._call(["kubectl", *arguments], stdin)

    def line(self, text: str) -> Done:
        """Run one line of a shell."""
        return self._call(["bash", "-c", text], "")

    def served(self) -> set[tuple[str, str]]:
        """API version and kind of all resources of the server."""
        found = self.run("api-resources", "--no-headers")
        assert found.returncode == 0, found.stderr
        rows = [line.split() for line in found.stdout.splitlines()]
        return {(row[-3], row[-1]) for row in rows}

    def apply(self, folder: str, *flags: str) -> set[tuple[str, str]]:
        """Apply kustomize's output for ``folder``, strictly validated; the kinds that the server lacks."""
        flags = ("--server-side", "--force-conflicts", "--validate=strict", *flags)
        return self._of_folder(folder, "apply", *flags)

    def would_delete(self, folder: str) -> set[tuple[str, str]]:
        """A dry run of deleting kustomize's output for ``folder``; the kinds that the server lacks."""
        return self._of_folder(folder, "delete", "--dry-run=server")

    def _of_folder(self, folder: str, *command: str) -> set[tuple[str, str]]:
        built = self.run("kustomize", str(ROOT / folder))
        assert built.returncode == 0, built.stderr
        objects: list[dict[str, Any]] = [one for one in yaml.safe_load_all(built.stdout) if one]
        served = self.served()
        known = [one for one in objects if (one["apiVersion"], one["kind"]) in served]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": known})
        done = self.run(*command, "-f", "-", stdin=text) if known else built
        assert done.returncode == 0, f"{folder}: {done.stderr}"
        return {(one["apiVersion"], one["kind"]) for one in objects} - served

    def _call(self, command: list[str], stdin: str) -> Done:
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        return subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=120.0,
        )
