"""Evidence to judgement: the judge, with its rules on whole kernels and on single replicas."""
