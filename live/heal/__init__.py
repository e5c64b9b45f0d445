"""The return of replicas on real servers: caches flushed, probes that generate, traffic by steps."""
