"""OCI artefacts fetched from registries by digest: credentials, the distribution API, the store."""
