"""Drills on live servers: load, injection, proof, undo, and the episode record."""
