"""The request engine: B fleets of continuously batching replicas, exact per request."""
