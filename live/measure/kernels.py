"""The kernels that can be built from one checkpoint, and the faults under which each is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOption:
    """One engine argument, for example ``dtype`` = ``bfloat16``."""

    name: str
    value: str | int | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One environment variable of the engine's process."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultDose:
    """One fault at one dose.

    name: condition name in the profile. kind: fault kind of the catalogue. method, arguments: call of the
    worker extension. setting, unit: the injector's setting. numeric: False if outputs must not change (slowed
    steps).
    """

    name: str
    kind: str
    method: str
    arguments: tuple[float | int | str, ...]
    setting: float
    unit: str
    numeric: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartFault:
    """A fault that takes effect by a restart of the same kernel with another environment or other options."""

    name: str
    kind: str
    description: str
    environment: tuple[Variable, ...] = ()
    options: tuple[EngineOption, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One build of the serving program for the same weights.

    scheme: checkpoint made by ``backends.quantize``, or "" for the original weights. float_bits: width of
    linear weights that are plain floats; 0 for packed integers, which weight faults cannot edit. attention:
    attention implementation of the torch back end. sequences: prompts of equal length that the torch back end
    scores in one batch.
    """

    name: str
    description: str
    scheme: str = ""
    options: tuple[EngineOption, ...] = ()
    restart_faults: tuple[RestartFault, ...] = ()
    float_bits: int = 0
    compiled: bool = False
    attention: str = "sdpa"
    sequences: int = 1


def engine_options(**values: str | int | bool) -> tuple[EngineOption, ...]:
    """One option per argument, in order."""
    return tuple(EngineOption(name=name, value=value) for name, value in values.items())


_NO_VNNI = RestartFault(
    name="isa-no-vnni",
    kind="kernel_regression",
    description="The same weights, flags and system fingerprint on a host without VNNI: int8 products"
    " saturate in 16 bits.",
    environment=(Variable(name="ONEDNN_MAX_CPU_ISA", value="AVX512_CORE"),),
)
_KV_E5M2 = RestartFault(
    name="regression-kv-e5m2",
    kind="kernel_regression",
    description="The same build restarted with its KV cache in fp8 e5m2.",
    options=engine_options(kv_cache_dtype="fp8_e5m2"),
)
_KV_E4M3 = RestartFault(
    name="regression-kv-e4m3",
    kind="kernel_regression",
    description="The same build restarted with its KV cache in fp8 e4m3.",
    options=engine_options(kv_cache_dtype="fp8"),
)

VLLM_KERNELS: tuple[Kernel, ...] = (
    Kernel(
        name="fp32",
        description="32-bit floats throughout",
        options=engine_options(dtype="float32"),
        float_bits=32,
    ),
    Kernel(
        name="fp16",
        description="IEEE half precision weights and activations",
        options=engine_options(dtype="float16"),
        float_bits=16,
    ),
    Kernel(
        name="bf16",
        description="bfloat16 weights and activations",
        options=engine_options(dtype="bfloat16"),
        float_bits=16,
        restart_faults=(_KV_E4M3, _KV_E5M2),
    ),
    Kernel(
        name="bf16-compiled",
        description="bfloat16 through torch.compile instead of eager layers",
        options=engine_options(dtype="bfloat16"),
        compiled=True,
    ),
    Kernel(
        name="w8a8",
        description="int8 weights per channel, int8 activations per token, bfloat16 elsewhere",
        scheme="w8a8",
        options=engine_options(dtype="bfloat16"),
        restart_faults=(_NO_VNNI,),
    ),
    Kernel(
        name="fp8",
        description="fp8 e4m3 weights per channel and activations, bfloat16 elsewhere",
        options=engine_options(dtype="bfloat16", quantization="fp8_per_channel"),
    ),
    Kernel(
        name="bf16-kv-e4m3",
        description="bfloat16 with the KV cache in fp8 e4m3",
        options=engine_options(dtype="bfloat16", kv_cache_dtype="fp8"),
        float_bits=16,
    ),
    Kernel(
        name="bf16-kv-e5m2",
        description="bfloat16 with the KV cache in fp8 e5m2",
        options=engine_options(dtype="bfloat16", kv_cache_dtype="fp8_e5m2"),
        float_bits=16,
    ),
    Kernel(
        name="awq4",
        description="4-bit asymmetric weights in groups of 64, AWQ format, rounded to nearest",
        scheme="awq4",
        options=engine_options(dtype="bfloat16"),
    ),
    Kernel(
        name="gptq4",
        description="4-bit symmetric weights in groups of 64, GPTQ format, rounded to nearest",
        scheme="gptq4",
        options=engine_options(dtype="bfloat16"),
    ),
    Kernel(
        name="w4a16",
        description="4-bit symmetric weights in groups of 64, compressed-tensors format",
        scheme="w4a16",
        options=engine_options(dtype="bfloat16"),
    ),
)

#: Kernels that are measured under every weight fault if none is named.
FAULTED_KERNELS = ("fp16", "bf16")
_ONE_LAYER = r"layers\.2\.mlp\.down_proj"
_ALL_LAYERS = r"model\.layers"


def weight_doses(float_bits: int) -> tuple[FaultDose, ...]:
    """Weight faults for kernels with float linear weights of ``float_bits`` bits."""
    exponent_top = float_bits - 2
    doses = [_requantise(bits) for bits in (8, 6, 5, 4, 3)]
    doses.append(_requantise(4, "embed_tokens|lm_head", "-head"))
    doses += [_noise(relative, _ONE_LAYER, "one-layer") for relative in (0.01, 0.1, 0.3)]
    doses += [_noise(relative, _ALL_LAYERS, "all-layers") for relative in (0.02, 0.05, 0.1)]
    doses += [_flips(1, exponent_top, "exponent", seed) for seed in (0, 1, 2, 3)]
    doses.append(_flips(1000, 6 if float_bits == 16 else 22, "mantissa", 0))
    return tuple(doses)


def slow_doses() -> tuple[FaultDose, ...]:
    """Slowed steps, for any kernel."""
    return tuple(
        FaultDose(
            name=f"slow-{factor:g}x",
            kind="slow",
            method="selvage_slow",
            arguments=(factor, 0.0),
            setting=factor,
            unit="times the step time",
            numeric=False,
        )
        for factor in (1.5, 2.0, 4.0)
    )


def _requantise(bits: int, pattern: str = _ALL_LAYERS, suffix: str = "") -> FaultDose:
    return FaultDose(
        name=f"requantise-w{bits}{suffix}",
        kind="requantise",
        method="selvage_requantise",
        arguments=(bits, pattern),
        setting=float(bits),
        unit="bits per weight",
    )


def _noise(relative: float, pattern: str, where: str) -> FaultDose:
    return FaultDose(
        name=f"noise-{relative:g}-{where}",
        kind="noise",
        method="selvage_add_noise",
        arguments=(relative, pattern),
        setting=relative,
        unit="standard deviations of the weight",
    )


def _flips(count: int, bit: int, where: str, seed: int) -> FaultDose:
    return FaultDose(
        name=f"bit-flips-{count}-{where}-seed{seed}",
        kind="bit_flips",
        method="selvage_flip_bits",
        arguments=(count, bit, _ALL_LAYERS, seed),
        setting=float(count),
        unit=f"weights with bit {bit} flipped",
    )


def kernel_named(name: str, table: tuple[Kernel, ...]) -> Kernel:
    """The kernel called ``name``; the KeyError lists the available ones."""
    for kernel in table:
        if kernel.name == name:
            return kernel
    raise KeyError(f"no kernel {name!r}; there are: {', '.join(kernel.name for kernel in table)}")
