"""Scores of E5: tables, one policy against all others, harm, budgets, from stored episodes."""
