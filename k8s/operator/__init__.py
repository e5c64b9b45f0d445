"""The operator's decisions: which resources are accepted, what is in force, and what their status says."""
