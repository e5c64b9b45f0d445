"""The cluster world: custom resources, routes and an operator for Kubernetes.

It may use `live` (the same servers, found another way) and everything below, never `simulator`.
"""
