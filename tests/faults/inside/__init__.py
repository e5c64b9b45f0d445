"""Laws of what runs inside a server that was started for drills."""
