"""The supervisor: decides whether the policy, the certified baseline or the last table drives."""
