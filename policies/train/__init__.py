"""Training: recipe, behaviour cloning, constrained PPO, tuning of baselines."""
