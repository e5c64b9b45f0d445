"""Laws of sequential detection."""
