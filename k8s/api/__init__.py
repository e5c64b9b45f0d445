"""The API server: the only room that imports the Kubernetes client."""
