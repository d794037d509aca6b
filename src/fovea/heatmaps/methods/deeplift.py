"""DeepLIFT (Shrikumar et al. 2017), by captum."""

from torch import Tensor

from fovea.basics import DoesNotApply
from fovea.heatmaps import Aim, Finding, Look, method
from fovea.heatmaps.pixels import Scored, attributed, captum, pixels_of
from fovea.heatmaps.rectifiers import with_rectifiers

TOLERANCE = 0.02  # of what all pixels add and take away: max-pooling is off by 0.005, a GELU by 0.03 and more


@method(
    "deeplift",
    about="differences from gray, followed back through every ReLU",
    passes=6,
    on="pixels",
    paper="Shrikumar et al. 2017",
    takes="two passes there and back",
    needs="captum (fovea[attributions]), ReLU layers",
)
class DeepLift:
    """C_i = (x_i - x'_i) m_i with the multipliers of the rescale rule, Δout / Δin at every nonlinearity (Eqs. 1 to 5);
    a pixel's value is the sum over its channels. The baseline x' is 0 after normalization, the mean gray. All pixels
    together make up y(x) - y(x'). captum follows ReLU, sigmoid, tanh, softmax and max-pooling layers; where the sum is
    not right, the network has others, and the method does not apply."""

    name = "deeplift"

    def __call__(self, look: Look, aim: Aim) -> Finding:
        library = captum()
        pixels_of(look)
        other = with_rectifiers(look, exact=True)
        scored = Scored(look, aim, module=other)

        def attribute(x: Tensor) -> Tensor:
            found: Tensor
            found, rest = library.DeepLift(scored).attribute(x, return_convergence_delta=True)
            scale = found.detach().abs().flatten(1).sum(1)
            if bool((rest.abs() > TOLERANCE * scale).any()):
                raise DoesNotApply(
                    "captum's DeepLIFT follows ReLU, sigmoid, tanh, softmax and max-pooling layers, and this network "
                    "has others: its pixels do not make up the score; use integrated-gradients"
                )
            return found

        return attributed(look, attribute, signed=True)
