"""What commands that tell of a run share: decision logs, explanations, bundles, summaries."""
