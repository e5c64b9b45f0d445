"""Studies of training: speed of the environment, and PPO of a library on it."""
