"""Ways to find where a network looks, one per file."""
