"""How far a running server is from its reference, per position: the quickest route there is, and the table."""
