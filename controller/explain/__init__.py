"""Explanations: why a tick decided as it did, as records for logs and people."""
