"""Training: recipe, imitation, PPO under constraints, tuning of baselines."""
