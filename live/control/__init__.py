"""The controller of live servers: one turn per tick through ports, its decision log, state and lock."""
