"""Patches of any data set without anybody drawing boxes: sources by one line of text, kept in a file as they come."""

from collections.abc import Iterable

from fovea.data import Box, DataSet, Sample
from fovea.patches.cache import Extracted, default_file, extract
from fovea.patches.opening import Patches, Source, kinds, open_source
from fovea.pictures import Given, gather

__all__ = ["Box", "Extracted", "Patches", "Source", "default_file", "extract", "kinds", "open_source", "pictures_of"]


def pictures_of(given: Given | Iterable[Given]) -> DataSet:
    """Files, folders, globs, PIL pictures or arrays; what cannot be read is found out when it is asked for."""
    return DataSet("pictures", tuple(Sample(picture.name, 0, picture) for picture in gather(given)), ("",))
