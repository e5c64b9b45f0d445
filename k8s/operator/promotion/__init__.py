"""Promotions of a namespace: which are accepted, whom they ask, what they let in, and what is said."""
