"""A fleet of vLLM servers on this machine: start, supervision, state file, and clean shutdown."""
