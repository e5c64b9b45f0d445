"""The ``selvage`` command line: one module per command, and packages that several commands share."""
