"""What commands that measure servers share: requests, checks, runs, agreement, the KL table."""
