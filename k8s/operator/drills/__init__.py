"""Drills on a cluster: which are accepted, the pods they strike, what is kept and said of them."""
