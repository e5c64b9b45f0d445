"""Backends to measure a kernel with: torch, vLLM in a process of its own, or a server by its address."""
