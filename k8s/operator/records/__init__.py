"""What outlives a turn: the decision log and its room, and the snapshot a new leader goes on from."""
