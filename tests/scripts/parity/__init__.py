"""Tests of the same load in both worlds."""
