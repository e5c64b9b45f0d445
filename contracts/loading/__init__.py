"""Documents in and out: text to checked models, models to text, files and what they refer to."""
