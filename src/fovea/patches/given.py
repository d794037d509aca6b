"""Pictures without labels as a set, so that patches of a user's own photographs are found and kept like any other."""

from collections.abc import Iterable
from dataclasses import dataclass

from PIL import Image

from fovea.data.samples import DataSet, Sample
from fovea.pictures import Given, Picture, gather


@dataclass(frozen=True, eq=False)
class AsGiven:
    picture: Picture

    def read(self) -> Image.Image:
        return self.picture.read()


def pictures_of(given: Given | Iterable[Given]) -> DataSet:
    """Files, folders, globs, PIL pictures or arrays; what cannot be read is found out when it is asked for."""
    return DataSet("pictures", tuple(Sample(picture.name, 0, AsGiven(picture)) for picture in gather(given)), ("",))
