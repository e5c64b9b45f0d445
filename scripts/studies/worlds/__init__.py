"""Random worlds outside every suite, and the harm that policies do in them."""
