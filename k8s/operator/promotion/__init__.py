"""Promotions of a namespace: admission, webhooks, effects on the documents in force, and status."""
