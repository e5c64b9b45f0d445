"""What a policy is shown of state and judgement, and how its answer is read."""
