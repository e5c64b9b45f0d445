"""Certificates of policies and the files that carry them."""
