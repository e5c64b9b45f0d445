"""How a kernel is run to be measured: torch, vLLM in a process of its own, or a server behind an address."""
