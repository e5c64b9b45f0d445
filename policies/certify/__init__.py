"""Certificates of policies: evidence, admission checks, signatures, and the files that carry them."""
