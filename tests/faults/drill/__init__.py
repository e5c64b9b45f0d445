"""Laws of drills."""
