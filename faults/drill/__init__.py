"""Drills: what is struck when, the phases of a run, its guards, its durable record and its verdict."""
