"""Training runs, certification runs and logs: worlds and policies joined."""
