"""Promotions of a namespace: which are accepted, what they let in, whom they ask and tell, and what is said of them."""
