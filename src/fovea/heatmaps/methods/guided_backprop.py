"""Guided backpropagation (Springenberg et al. 2015), by captum."""

from fovea.heatmaps import Aim, Finding, Look, method
from fovea.heatmaps.pixels import Scored, attributed, captum, pixels_of
from fovea.heatmaps.rectifiers import with_rectifiers


@method(
    "guided-backprop",
    about="the gradient, its positive part alone at every ReLU",
    passes=3,
    on="pixels",
    paper="Springenberg et al. 2015",
    takes="one pass there and back",
    needs="captum (fovea[attributions]), ReLU layers",
)
class GuidedBackprop:
    """dy/dx, where the backward pass of every ReLU is R_l = [f_l > 0] [R_(l+1) > 0] R_(l+1); a pixel's value is the sum
    of the sizes over its channels. It draws the edges of what is seen, and hardly changes with the class or the weights
    (Adebayo et al. 2018): see `fovea sanity`."""

    name = "guided-backprop"

    def __call__(self, look: Look, aim: Aim) -> Finding:
        library = captum()
        pixels_of(look)
        other = with_rectifiers(look, exact=False)
        return attributed(look, library.GuidedBackprop(Scored(look, aim, module=other)).attribute, signed=False)
