"""Access to the Kubernetes API server; the only package that imports the Kubernetes client."""
