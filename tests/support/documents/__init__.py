"""Documents of tests: valid ones, and ones that make no sense."""
