"""Sequential detection beside the best tuned window."""
