"""Training and certification runs and their logs: worlds and policies joined."""
