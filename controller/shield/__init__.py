"""The shield: turns any proposal, learned or not, into an allowed routing table."""
