"""Drills on live servers: load, injection, proof, undo, and the record of what happened."""
