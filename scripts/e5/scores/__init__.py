"""From kept episodes to figures: tables, one policy against all others, harm, budgets."""
