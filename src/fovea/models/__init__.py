"""Architectures, one per file: plain modules that return dataclasses, and the builders that declare them."""
