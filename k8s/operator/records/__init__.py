"""Records that outlive a turn: the decision log and its disk space, and the snapshot for a new leader."""
