"""Shared by commands that report on a run: decision logs, explanations, bundles, summaries."""
