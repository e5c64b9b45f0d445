"""Set-up of the environment, and what this installation has."""
