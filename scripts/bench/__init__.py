"""Benchmarks: one module per `selvage bench NAME`."""
