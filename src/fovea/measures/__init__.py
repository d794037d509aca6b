"""Figures: how well a network's attention localises, and what it costs."""
