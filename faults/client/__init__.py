"""Client of the fault injection in live servers: inject, renew, undo, verify, find a dose."""
