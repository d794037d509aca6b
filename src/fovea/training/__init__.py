"""One loop that trains every network from a recipe."""
