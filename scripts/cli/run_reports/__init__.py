"""What commands that report on a run share: decision logs, explanations, bundles, summaries."""
