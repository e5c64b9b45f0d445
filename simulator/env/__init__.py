"""The fleet as a constrained decision process for Gymnasium."""
