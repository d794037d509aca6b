"""Data to train on and to measure with."""
