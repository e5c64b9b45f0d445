"""Fetch what tests of the cluster world start: ``python -m scripts.setup.kube_assets [--into DIR]``.

etcd and kube-apiserver as published for controller-runtime's envtest, the HTTPRoute definition of the
Gateway API, and the InferencePool of its inference extension. Prints the two variables to set; tests look
into the default folder by themselves. What is there already is kept. ``make setup-test`` does this where
KUBEBUILDER_ASSETS is not set; nothing is fetched by a test.
"""

from __future__ import annotations

import argparse
import io
import platform
import tarfile
from pathlib import Path

import httpx

#: Releases, pinned: the API server's, the Gateway API's, and its inference extension's.
ENVTEST, GATEWAY_API, INFERENCE = "1.34.0", "1.4.0", "1.0.0"
_ENVTEST_URL = (
    "https://github.com/kubernetes-sigs/controller-tools/releases/download/"
    "envtest-v{version}/envtest-v{version}-{system}-{machine}.tar.gz"
)
DEFINITIONS = {
    "httproutes.yaml": (
        f"https://raw.githubusercontent.com/kubernetes-sigs/gateway-api/v{GATEWAY_API}/"
        "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"
    ),
    "inferencepools.yaml": (
        "https://raw.githubusercontent.com/kubernetes-sigs/gateway-api-inference-extension/"
        f"v{INFERENCE}/config/crd/bases/inference.networking.k8s.io_inferencepools.yaml"
    ),
}
#: Where tests look while KUBEBUILDER_ASSETS and GATEWAY_API_CRDS name nothing.
FOLDER = Path.home() / ".cache" / "selvage" / "kube"
PROGRAMS = ("etcd", "kube-apiserver")
_MACHINES = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def main(argv: list[str] | None = None) -> int:
    """Exit code 0, or 1 where something cannot be had."""
    parser = argparse.ArgumentParser(prog="kube_assets", description=__doc__)
    parser.add_argument("--into", type=Path, default=FOLDER)
    folder: Path = parser.parse_args(argv).into
    try:
        fetch_programs(folder)
        fetch_definitions(folder)
    except (httpx.HTTPError, KeyError, OSError) as error:
        wanted = ", ".join((*PROGRAMS, *DEFINITIONS))
        print(f"cannot fetch: {error}; put {wanted} into {folder} by hand")
        return 1
    print(f"export KUBEBUILDER_ASSETS={folder} GATEWAY_API_CRDS={folder}")
    return 0


def fetch_programs(folder: Path) -> None:
    """etcd and kube-apiserver into ``folder``, unless they are there."""
    if all((folder / name).is_file() for name in PROGRAMS):
        return
    machine = _MACHINES[platform.machine()]
    url = _ENVTEST_URL.format(version=ENVTEST, system=platform.system().lower(), machine=machine)
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(_download(url))) as archive:
        for member in archive.getmembers():
            name = Path(member.name).name
            content = archive.extractfile(member) if name in PROGRAMS else None
            if content is not None:
                _write(folder / name, content.read(), mode=0o755)


def fetch_definitions(folder: Path) -> None:
    """The definitions of HTTPRoute and InferencePool into ``folder``, unless they are there."""
    for name, url in DEFINITIONS.items():
        if not (folder / name).is_file():
            _write(folder / name, _download(url), mode=0o644)


def _download(url: str) -> bytes:
    found = httpx.get(url, follow_redirects=True, timeout=httpx.Timeout(120.0, connect=10.0))
    found.raise_for_status()
    return found.content


def _write(target: Path, content: bytes, mode: int) -> None:
    """Whole or not at all."""
    part = target.with_suffix(target.suffix + ".part")
    part.write_bytes(content)
    part.chmod(mode)
    part.replace(target)


if __name__ == "__main__":
    raise SystemExit(main())
