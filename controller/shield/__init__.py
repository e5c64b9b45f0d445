"""Every proposal passes here, learned or not, and comes out allowed."""
