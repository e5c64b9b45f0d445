"""Custom resources: the documents of ``contracts`` as a Kubernetes API server stores them."""
