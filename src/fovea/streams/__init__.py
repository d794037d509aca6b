"""Two-stream networks that look longer: the answer, and where each step looks."""
