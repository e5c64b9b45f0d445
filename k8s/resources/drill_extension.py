"""What drills need in a pod, generated from the sources: the extension and a patch for a Deployment.

The sources go into an immutable ConfigMap named by their hash. The patch holds that hash and a loader which
checks it before importing anything of the extension; a server whose files differ does not start.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from contracts.loading.files import write_texts
from faults.client.launch import PACKAGE, PLUGGED, PROCESSORS, extension_files
from faults.inside import gate

#: Label of pods whose servers accept faults, and its value.
DRILLS, ALLOWED = "selvage.dev/drills", "allowed"
#: Port on which a server that was started for drills accepts faults.
DRILL_PORT = 9465
#: Secret with the key ``token``, mounted by servers and by the drill runner.
TOKEN_SECRET = "selvage-drill-token"
_CODE, _TOKEN, _FOLDER = "/opt/selvage-drill", "/etc/selvage-drill", "/run/selvage-drill"
#: Folder into which components/pod-metrics puts its file; it need not exist.
_POD_METRICS = "/opt/selvage-pod"
_HEAD = "# Generated from faults/inside by `selvage kubernetes drill-extension`; do not edit.\n"
_LOADER = """\
import hashlib, os, pathlib, sys
root = pathlib.Path("{code}/{package}")
lines = sorted(
    f"{{path.relative_to(root).as_posix()}} {{hashlib.sha256(path.read_bytes()).hexdigest()}}"
    for path in root.rglob("*") if path.is_file()
)
found = hashlib.sha256("\\n".join(lines).encode()).hexdigest()
if found != "{sha256}":
    sys.exit(f"{{root}}: expected files of sha256 {sha256}, got {{found}}; apply the drills component anew")
os.execvp("python3", ["python3", "-m", "vllm.entrypoints.openai.api_server", *sys.argv[1:]])
"""


def extension_sha256(files: Mapping[str, bytes]) -> str:
    """Hash that pins ``files``: over each path and the hash of its content, sorted."""
    lines = sorted(f"{path} {hashlib.sha256(content).hexdigest()}" for path, content in files.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def extension_texts() -> dict[str, str]:
    """File name -> text of the ConfigMap and of the patch."""
    files = extension_files()
    sha256 = extension_sha256(files)
    return {
        "extension.yaml": _text(_config_map(files, sha256)),
        "servers.yaml": _text(_patch(files, sha256)),
    }


def write_extension(folder: Path) -> list[Path]:
    """Write both files into ``folder``; returns the paths."""
    return write_texts(folder, extension_texts())


def loader(sha256: str, code: str = _CODE) -> str:
    """The program that checks the files below ``code`` against ``sha256`` and then executes vLLM's server."""
    return _LOADER.format(code=code, package=PACKAGE, sha256=sha256)


def _name(sha256: str) -> str:
    return f"selvage-drill-extension-{sha256[:12]}"


def _key(path: str) -> str:
    """ConfigMap key for ``path``; keys may not contain slashes."""
    return path.replace("/", ".")


def _config_map(files: Mapping[str, bytes], sha256: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": _name(sha256),
            "labels": {"app.kubernetes.io/part-of": "selvage"},
            "annotations": {"selvage.dev/sha256": sha256},
        },
        "immutable": True,
        "data": {_key(path): content.decode() for path, content in sorted(files.items())},
    }


def _patch(files: Mapping[str, bytes], sha256: str) -> dict[str, Any]:
    """Strategic merge patch for a Deployment whose server is the container ``vllm``; its ``args`` stay."""
    items = [{"key": _key(path), "path": f"{PACKAGE}/{path}"} for path in sorted(files)]
    volumes = [
        {"name": "drill-extension", "configMap": {"name": _name(sha256), "items": items}},
        # Without the Secret, the server starts and refuses faults.
        {"name": "drill-token", "secret": {"secretName": TOKEN_SECRET, "optional": True}},
        {"name": "drill-lease", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    ]
    spec = {"containers": [_container(sha256)], "volumes": volumes}
    template = {"metadata": {"labels": {DRILLS: ALLOWED}}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "any"},
        "spec": {"template": template},
    }


def _container(sha256: str) -> dict[str, Any]:
    environment = {
        gate.FLAG: "1",
        gate.TOKEN_FILE: f"{_TOKEN}/token",
        gate.FOLDER: _FOLDER,
        gate.PORT: str(DRILL_PORT),
        "PYTHONPATH": f"{_POD_METRICS}:{_CODE}",
        "VLLM_USE_V2_MODEL_RUNNER": "0",
        "VLLM_SERVER_DEV_MODE": "0",
    }
    env: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in environment.items()]
    fields = {gate.HOST: "status.podIP", gate.REPLICA: "metadata.name"}
    env += [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
    mounts = {"drill-extension": _CODE, "drill-token": _TOKEN, "drill-lease": _FOLDER}
    return {
        "name": "vllm",
        # Isolated mode, so that the loader imports none of the files that it checks.
        "command": ["python3", "-I", "-c", loader(sha256), *PLUGGED, *PROCESSORS],
        "env": env,
        "ports": [{"name": "drills", "containerPort": DRILL_PORT}],
        "volumeMounts": [
            {"name": name, "mountPath": path, "readOnly": name != "drill-lease"}
            for name, path in mounts.items()
        ],
    }


class _Blocks(yaml.SafeDumper):
    """Writes texts of several lines as block scalars, which are readable."""


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Blocks.add_representer(str, _string)


def _text(manifest: Mapping[str, object]) -> str:
    return _HEAD + str(yaml.dump(manifest, Dumper=_Blocks, sort_keys=False, width=1000, allow_unicode=True))
