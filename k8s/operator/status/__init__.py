"""What people are shown: conditions, events, outcomes, recent moves, failed turns."""
