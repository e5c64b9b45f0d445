"""Probes of running servers: known prompts within a budget, judged against stored reference answers."""
