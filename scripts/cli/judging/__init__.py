"""Shared by commands that judge contracts: inputs, checks, tables, JUnit."""
