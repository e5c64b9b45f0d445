"""Promotions of a namespace: which are accepted, what they let in, and what is said of them."""
