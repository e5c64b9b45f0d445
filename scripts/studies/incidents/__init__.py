"""Incidents of the field on a live server, in parts: planned, watched, kept, and put on their page."""
