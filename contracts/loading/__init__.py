"""Loading and writing documents: YAML text to checked models and back, files, URIs and references."""
