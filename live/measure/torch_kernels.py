"""The kernels of the torch back end: those for any device, and those that need a GPU.

The dtype is that of weights and activations. Option ``quantization`` makes the linear layers inside the model
multiply narrower numbers (``backends.narrow_linear``); option ``products`` sets how wide numbers are
multiplied. Attention is ``eager``, ``sdpa`` (torch chooses), or one of torch's own back ends by name.
"""

from __future__ import annotations

from live.measure.kernels import Kernel, engine_options

TORCH_KERNELS: tuple[Kernel, ...] = tuple(
    Kernel(
        name=f"torch-{short}-{attention}",
        description=f"Hugging Face transformers in {dtype} with {attention} attention",
        options=engine_options(dtype=dtype),
        float_bits=bits,
        attention=attention,
    )
    for short, dtype, bits in (("fp32", "float32", 32), ("fp16", "float16", 16), ("bf16", "bfloat16", 16))
    for attention in ("sdpa", "eager")
)

_ATTENTION = {
    "flash": "flash attention",
    "cudnn": "cuDNN's attention",
    "math": "attention as plain products",
}
_NARROW = {
    "fp8-row": ("fp8_per_channel", "fp8 e4m3 weights per channel and activations per token"),
    "fp8-tensor": ("fp8_per_tensor", "fp8 e4m3 weights and activations, one scale per tensor"),
    "w8a8": ("int8_per_channel", "int8 weights per channel and activations per token"),
    "w4a16": ("int4_group64", "4-bit weights in groups of 64"),
}

#: Kernels that run on NVIDIA GPUs only.
GPU_KERNELS: tuple[Kernel, ...] = (
    *(
        Kernel(
            name=f"torch-bf16-{short}",
            description=f"bfloat16 with {said}",
            options=engine_options(dtype="bfloat16"),
            float_bits=16,
            attention=short,
        )
        for short, said in _ATTENTION.items()
    ),
    Kernel(
        name="torch-bf16-batch32",
        description="bfloat16 with flash attention, 32 prompts of one length at a time",
        options=engine_options(dtype="bfloat16"),
        float_bits=16,
        attention="flash",
        sequences=32,
    ),
    Kernel(
        name="torch-bf16-compiled",
        description="bfloat16 through torch.compile instead of eager layers",
        options=engine_options(dtype="bfloat16"),
        compiled=True,
    ),
    Kernel(
        name="torch-fp16-flash",
        description="float16 with flash attention",
        options=engine_options(dtype="float16"),
        float_bits=16,
        attention="flash",
    ),
    Kernel(
        name="torch-fp16-accumulate",
        description="float16 whose products are summed in float16",
        options=engine_options(dtype="float16", products="fp16_accumulation"),
        float_bits=16,
    ),
    Kernel(
        name="torch-tf32",
        description="float32 whose products are rounded to tf32",
        options=engine_options(dtype="float32", products="tf32"),
        float_bits=32,
    ),
    *(
        Kernel(
            name=f"torch-{short}",
            description=f"{said}, bfloat16 elsewhere",
            options=engine_options(dtype="bfloat16", quantization=quantization),
            attention="flash",
        )
        for short, (quantization, said) in _NARROW.items()
    ),
)
