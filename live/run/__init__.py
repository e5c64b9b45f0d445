"""A controller put together: for a fleet of this machine, and for servers that somebody else started."""
