"""E5 with drills on real servers as episodes: plan, results and report, the same for every target."""
