"""The patches, words and moments that speak for an answer; where patches come from."""
