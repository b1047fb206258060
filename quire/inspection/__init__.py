"""Looking at a store that another process owns, or that nobody can open."""
