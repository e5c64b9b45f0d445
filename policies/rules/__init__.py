"""Rule-based policies: the baselines and reference policies, written down rather than learned."""
