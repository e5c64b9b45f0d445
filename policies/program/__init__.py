"""The linear program of a routing table, and the policy that solves it every tick."""
