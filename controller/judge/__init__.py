"""Evidence to judgement: the judge, over what is known of whole kernels and of single replicas."""
