"""Promotions of a namespace: which are accepted, their webhooks, what they let in, and their reports."""
