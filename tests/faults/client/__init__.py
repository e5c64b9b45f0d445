"""Laws of steering faults from outside."""
