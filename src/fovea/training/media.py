"""Which medium a recipe trains on: what its data holds, and what its network takes."""

from fovea.basics import BadChoice
from fovea.data import held_by
from fovea.networks import kind_of, model, split
from fovea.training.clips import ClipMedium
from fovea.training.looking import TwoStreamMedium
from fovea.training.medium import Medium, Pictures
from fovea.training.patches import PatchMedium
from fovea.training.recipe import Recipe
from fovea.training.sounds import SoundMedium
from fovea.training.text import TextMedium

OTHERS = {"sounds": SoundMedium, "texts": TextMedium, "clips": ClipMedium}  # by what a data set holds


def medium_of(recipe: Recipe) -> Medium:
    holds = held_by(recipe.data.train)
    if holds in OTHERS:
        if recipe.data.validation is not None:
            raise BadChoice(f"data.validation is of pictures, and {recipe.data.train} holds {holds}: give data.test")
        if recipe.data.branch is not None or recipe.data.together > 1:
            raise BadChoice(f"data.branch and data.together are of pictures, and {recipe.data.train} holds {holds}")
        return OTHERS[holds](recipe)
    if recipe.data.localizer is not None:
        return PatchMedium(recipe)
    kind = kind_of(recipe.network.name)
    kind = split(kind)[0] or kind
    streams = kind in model and "streams" in model.entry(kind).traits.get("can", ())  # before it is built
    return TwoStreamMedium(recipe) if streams else Pictures(recipe)
