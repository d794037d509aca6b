"""Patches of any data set without anybody drawing boxes: sources by one line of text, kept in a file as they come."""

from fovea.data import Box, pictures_of
from fovea.patches.cache import Extracted, default_file, extract
from fovea.patches.lines import kinds
from fovea.patches.opening import Patches, Source, open_source

__all__ = ["Box", "Extracted", "Patches", "Source", "default_file", "extract", "kinds", "open_source", "pictures_of"]
