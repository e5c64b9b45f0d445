"""The `selvage` command line: one module per command."""
