"""A two-stream network small enough to be worked out by hand, and a picture to go with it."""

import torch
from PIL import Image
from torch import Tensor, nn

from fovea.models.localstream import LocalStream, Recurrent, SelfAttention
from fovea.models.trunks import Trunk
from fovea.models.twostream import GlobalStream, TwoStream, TwoStreamOptions
from fovea.networks import Network
from fovea.patches.opening import Patches
from fovea.pictures import Prepare

BOX = (8.0, 8.0, 24.0, 24.0)  # the one patch of the 32 x 32 input
STEPS = 3


def made(steps: int = STEPS, boxes: tuple[tuple[float, ...], ...] = (BOX,), ask: bool = False) -> Network:
    """Maps are means of 4 x 4 pixels. c_t = c_{t-1} + tanh(red - green), phi_t = tanh(c_t): all gates are open.

    The local stream's classes are phi and -phi; the global stream's are red + 1 and green.
    """
    hidden = 4 if ask else 1
    options = TwoStreamOptions(
        steps=steps, hidden=hidden, layers=2 if ask else 1, self_attention=ask, keys=1, places=4, side=32, patch=16,
        patches=len(boxes),
    )  # fmt: skip
    local = LocalStream(3, 2, options)
    if ask:
        local.recurrent = Recurrent(3, options, SelfAttention(3, hidden, keys=1, places=4, width=8))
    whole, trunk = GlobalStream(_cells(), 2), _cells()
    module = TwoStream(whole, local, trunk, options)
    if not ask:
        _open_gates(local)
    with torch.no_grad():
        whole.classifier.weight.copy_(torch.tensor([[1.0, 0, 0], [0, 1, 0]]))
        whole.classifier.bias.copy_(torch.tensor([1.0, 0]))
    transform = Prepare((32, 32), (0.0,) * 3, (1.0,) * 3, None)
    return give_boxes(Network(module.eval(), transform, ("red_bird", "green_bird"), name="made"), boxes)


def give_boxes(network: Network, boxes: tuple[tuple[float, ...], ...]) -> Network:
    """A network whose source finds these boxes in every picture."""
    network.module.source = "made"
    patches = Patches(boxes, (0.0,) * len(boxes))
    network.kept["made", torch.device("cpu")] = lambda images: [patches] * len(images)
    return network


def _cells() -> Trunk:
    return Trunk(nn.AvgPool2d(4), (32, 32))


def _open_gates(local: LocalStream) -> None:
    assert local.recurrent is not None
    lstm = local.recurrent.lstm
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.zero_()
        lstm.bias_ih_l0.copy_(torch.tensor([50.0, 50, 0, 50]))  # input, forget, cell, output
        lstm.weight_ih_l0[2] = torch.tensor([1.0, -1, 0])
        local.classifier.weight.copy_(torch.tensor([[1.0], [-1]]))
        local.classifier.bias.zero_()


def scrambled(network: Network, seed: int = 0) -> Network:
    """The same with random weights, for what must hold whatever they are."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return network


def planted() -> Tensor:
    """3,32,32: of the patch's 4 x 4 cells, that in row 1 and column 2 is red, that in row 3 and column 0 is green."""
    picture = torch.zeros(3, 32, 32)
    picture[0, 12:16, 16:20] = 1
    picture[1, 20:24, 8:12] = 1
    return picture


def planted_image(size: tuple[int, int] = (96, 64)) -> Image.Image:
    """The same as a picture of 96 x 64 pixels, which is squashed to 32 x 32."""
    pixels = (planted().permute(1, 2, 0) * 255).byte().numpy()
    return Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST)
