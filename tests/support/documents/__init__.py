"""Documents of tests: valid and invalid ones."""
