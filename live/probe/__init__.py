"""Probes of running servers: golden prompts within a budget, judged against stored reference answers."""
