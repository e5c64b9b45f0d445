"""Random worlds that no suite was drawn for, and whether a policy does harm there."""
