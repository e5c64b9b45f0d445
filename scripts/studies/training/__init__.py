"""Studies of training: the environment that is measured, and a library's PPO on it."""
