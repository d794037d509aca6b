"""Networks that read a few glimpses of a picture: the answer, and what was read."""
