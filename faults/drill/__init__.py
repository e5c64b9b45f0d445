"""Drills: which faults strike when, the phases of a run, guards, the durable record and the verdict."""
