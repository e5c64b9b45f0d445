"""What commands that judge contracts share: inputs, checks, tables, JUnit."""
