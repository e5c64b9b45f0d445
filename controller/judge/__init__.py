"""Evidence to judgement: health of kernels, quarantine of replicas."""
