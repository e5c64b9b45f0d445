"""The linear program and the policy that solves it every tick."""
