"""How a candidate kernel is let in: offline, shadow, canary, full; pure, and judged without an end."""
