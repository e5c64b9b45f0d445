"""The controller of live servers: one turn per tick over ports, its log, its state, its place alone."""
