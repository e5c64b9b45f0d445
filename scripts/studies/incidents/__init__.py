"""Incidents from the field reproduced on a live server: plan, observation, results, page."""
