"""Clusters of tests: a real API server, objects, pods, routes, rights."""
