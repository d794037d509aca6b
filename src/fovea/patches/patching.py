"""Patches of any data set without anybody drawing boxes: sources by one line of text, kept in a file as they come."""

from fovea.data.samples import Box
from fovea.patches.cache import Extracted, default_file, extract
from fovea.patches.given import pictures_of
from fovea.patches.sources import SOURCES, Patches, Source, open_source

__all__ = ["SOURCES", "Box", "Extracted", "Patches", "Source", "default_file", "extract", "open_source", "pictures_of"]
