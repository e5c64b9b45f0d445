"""Sequential detection compared with the best tuned window detector."""
