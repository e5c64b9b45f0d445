"""Set-up of the environment, and the report of what this installation has (``selvage doctor``)."""
