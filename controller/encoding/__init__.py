"""Encoding: the observation and the features that a policy reads, and its actions as routing tables."""
