"""The operator on a namespace that is held in memory, with recorded answers of its servers."""
