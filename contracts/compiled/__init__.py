"""Documents as arrays: what the controller and the worlds compute with."""
