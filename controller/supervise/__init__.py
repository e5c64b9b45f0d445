"""Who drives: the policy, the baseline, or the last table."""
