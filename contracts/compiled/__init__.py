"""Documents compiled to arrays, which the controller and the worlds compute with."""
