"""Input x gradient (Shrikumar et al. 2016), by captum."""

from fovea.heatmaps import Aim, Finding, Look, method
from fovea.heatmaps.pixels import Scored, attributed, captum


@method(
    "input-x-gradient",
    about="each pixel times its gradient",
    passes=3,
    on="pixels",
    paper="Shrikumar et al. 2016",
    takes="one pass there and back",
    needs="captum (fovea[attributions])",
)
class InputXGradient:
    """x_i dy/dx_i; a pixel's value is the sum over its channels. x = 0 is the mean gray."""

    name = "input-x-gradient"

    def __call__(self, look: Look, aim: Aim) -> Finding:
        return attributed(look, captum().InputXGradient(Scored(look, aim)).attribute, signed=True)
