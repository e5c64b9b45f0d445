"""Shared by commands that measure servers: requests, checks, runs, agreement, the KL table."""
