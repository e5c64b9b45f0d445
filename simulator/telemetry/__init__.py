"""What the simulated fleet shows: scrapes and probes."""
