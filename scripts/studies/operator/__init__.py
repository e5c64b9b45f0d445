"""The operator on a namespace held in memory, with recorded answers of its servers."""
