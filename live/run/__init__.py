"""Assembles a controller: for a fleet of this machine, and for servers that were started elsewhere."""
