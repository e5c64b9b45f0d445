"""Policies that are rules: written down, not learned."""
