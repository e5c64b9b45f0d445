"""What is said to people: conditions, events, outcomes, recent moves, failed turns."""
