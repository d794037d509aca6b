"""Where a network looks in the frames of a clip."""
