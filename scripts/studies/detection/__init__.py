"""Studies behind the pages on detection."""
