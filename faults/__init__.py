"""Fault models: each kind of fault with its dose, schedule and effects, and the drills that inject them.

May use `contracts`; never `controller`. Files that are loaded inside a vLLM process say so and import
only the standard library, torch and vllm.
"""
