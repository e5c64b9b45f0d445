"""One-off measurements behind the documentation."""
