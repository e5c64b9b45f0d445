"""What can go wrong: each fault with its dose, its shape in time and its effects.

May use `contracts`; never `controller`. Files that are loaded inside a vLLM process say so and import
only the standard library, torch and vllm.
"""
