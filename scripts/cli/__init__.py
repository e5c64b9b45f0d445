"""The `selvage` command line: one module per command, and rooms of what several of them share."""
