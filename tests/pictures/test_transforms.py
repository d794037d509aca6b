import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision import transforms as T
from torchvision.transforms import v2

import fovea
from checks import refused
from fovea.pictures import Placement, Prepare, placement_of, probe

SIZES = [(300, 200), (200, 300), (96, 96), (640, 130)]
NORMAL = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def agree(one: Placement, other: Placement, within: float) -> None:
    """The same corners of the input lie at the same user pixels."""
    assert (one.picture, one.input) == (other.picture, other.input)
    for axis in (0, 1):
        for place in (0, one.input[axis]):
            here, there = (p.offset[axis] + p.scale[axis] * place for p in (one, other))
            assert here == pytest.approx(there, abs=within * max(abs(one.scale[axis]), 1))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "prepare", [Prepare((64, 64)), Prepare((64, 64), crop=1), Prepare((48, 80)), Prepare((64, 48), crop=None)]
)
def test_probing_finds_what_prepare_says(prepare: Prepare, size: tuple[int, int]) -> None:
    agree(prepare.placement(*size), probe(prepare.__call__, *size), within=1)


@pytest.mark.parametrize("size", SIZES)
def test_prepare_is_resize_and_center_crop(size: tuple[int, int]) -> None:
    theirs = T.Compose([T.Resize(64), T.CenterCrop(56), T.ToTensor(), NORMAL])
    ours = Prepare((56, 56), crop=56 / 64, interpolation="bilinear")
    agree(ours.placement(*size), probe(theirs, *size), within=1)
    smooth = Image.effect_noise((12, 12), 80).convert("RGB").resize(size, Image.Resampling.BICUBIC)
    assert (ours(smooth) - theirs(smooth)).abs().mean() < 0.1


def test_prepare_by_hand() -> None:
    assert Prepare((50, 50), crop=0.5).placement(200, 100).window == (75, 25, 125, 75)
    assert Prepare((50, 100), crop=None).placement(200, 100).window == (0, 0, 200, 100)
    white = Prepare((4, 4), mean=(0.5,) * 3, std=(0.25,) * 3)(Image.new("RGB", (9, 7), "white"))
    assert torch.equal(white, torch.full((3, 4, 4), 2.0))
    gray = Prepare((4, 4), mean=(0.0,), std=(1.0,))(Image.new("RGB", (9, 7), (51, 51, 51)))
    assert torch.allclose(gray, torch.full((1, 4, 4), 0.2))


@pytest.mark.parametrize(
    ("transform", "scale", "offset", "size"),
    [
        (T.Resize((50, 100)), (2, 2), (0, 0), (100, 50)),
        (T.Resize((80, 80)), (2.5, 1.25), (0, 0), (80, 80)),  # squashed
        (T.CenterCrop(60), (1, 1), (70, 20), (60, 60)),
        (T.Pad((10, 20, 30, 40)), (1, 1), (-10, -20), (240, 160)),
        (T.Pad(20, fill=128), (1, 1), (-20, -20), (240, 140)),
        (T.RandomHorizontalFlip(1.0), (-1, 1), (200, 0), (200, 100)),
        (T.RandomVerticalFlip(1.0), (1, -1), (0, 100), (200, 100)),
        (v2.Compose([v2.Resize(50), v2.CenterCrop(50), v2.RandomHorizontalFlip(1.0)]), (-2, 2), (150, 0), (50, 50)),
    ],
)
def test_torchvision_by_hand(
    transform: nn.Module, scale: tuple[float, float], offset: tuple[float, float], size: tuple[int, int]
) -> None:
    found = probe(T.Compose([transform, T.ToTensor(), NORMAL]), 200, 100)
    agree(Placement((200, 100), size, scale, offset), found, within=1)


def test_a_transform_that_knows_is_asked() -> None:
    prepare = Prepare((32, 32))
    assert placement_of(prepare, 70, 50) == prepare.placement(70, 50)


@pytest.mark.parametrize(
    "random", [T.RandomHorizontalFlip(0.3), T.RandomCrop(48), T.RandomResizedCrop(48), T.ColorJitter(brightness=0.5)]
)
def test_random_transforms_are_refused(random: nn.Module) -> None:
    for _ in range(5):
        refused("random: give the one used for evaluation", probe, T.Compose([random, T.ToTensor()]), 90, 64)


@pytest.mark.parametrize(
    "transform",
    [
        lambda image: T.ToTensor()(image.rotate(90, expand=True)),
        lambda image: T.ToTensor()(image.rotate(30)),
        lambda image: T.ToTensor()(image) * 0,
        T.Compose([T.Pad(60, padding_mode="reflect"), T.ToTensor()]),
    ],
)
def test_transforms_that_cannot_be_followed_are_refused(transform: object) -> None:
    refused("only crops, pads, flips, resizes and normalizes", probe, transform, 90, 64)


def test_a_transform_returns_one_tensor() -> None:
    refused(r"returns a C,H,W tensor; this one returned Image", probe, lambda image: image, 30, 30)
    refused(r"this one returned \(1, 3, 30, 30\)", probe, lambda image: T.ToTensor()(image)[None], 30, 30)


class Brightness(nn.Module):
    """Its map is how bright each 8 x 8 patch is."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 1, 8, 8, bias=False)
        self.fc = nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.patches.weight, 1 / 192)
        nn.init.constant_(self.fc.weight, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.patches(x).relu().mean((2, 3)))


TRANSFORMS = {
    "crop": Prepare((96, 96), (0.0,) * 3, (1.0,) * 3),
    "squash": Prepare((96, 96), (0.0,) * 3, (1.0,) * 3, crop=None),
    "resize": T.Compose([T.Resize(96), T.ToTensor()]),
    "center crop": T.Compose([T.Resize(112), T.CenterCrop(96), T.ToTensor()]),
    "flip": T.Compose([T.Resize((96, 96)), T.RandomHorizontalFlip(1.0), T.ToTensor()]),
    "upside down": T.Compose([T.Resize((96, 96)), T.RandomVerticalFlip(1.0), T.ToTensor()]),
    "pad": T.Compose([T.Pad((40, 80)), T.Resize((96, 96)), T.ToTensor()]),
    "letterbox": T.Compose([T.CenterCrop(400), T.Resize(96), T.ToTensor()]),
}


@pytest.mark.parametrize("square", [(230, 60, 280, 110), (130, 130, 190, 190)])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_boxes_are_in_the_users_pixels_whatever_the_transform(name: str, square: tuple[int, int, int, int]) -> None:
    picture = Image.new("RGB", (400, 240), "black")
    picture.paste("white", square)
    net = fovea.wrap(Brightness(), TRANSFORMS[name])
    seen = fovea.explain(net, picture, layer="patches")
    placement = seen.shown[0].placement
    cell = [8 * abs(scale) for scale in placement.scale]
    found = seen.boxes[0, 0]
    for side in range(4):
        assert found[side] == pytest.approx(square[side], abs=cell[side % 2] + 1), (found, square)
    heat = seen.pixels()
    assert heat.shape == (240, 400)
    x0, y0, x1, y1 = square
    assert heat[y0:y1, x0:x1].mean() > 5 * heat.mean()


def test_what_the_crop_left_out_is_zero() -> None:
    net = fovea.wrap(Brightness(), TRANSFORMS["crop"])
    heat = fovea.explain(net, Image.new("RGB", (400, 240), "white"), layer="patches").pixels()
    x0, y0, x1, y1 = (95, 15, 305, 225)  # 0.875 of 240 in the middle
    assert heat[y0 + 1 : y1 - 1, x0 + 1 : x1 - 1].min() > 0
    assert heat[:, : x0 - 1].max() == heat[:, x1 + 1 :].max() == heat[: y0 - 1].max() == heat[y1 + 1 :].max() == 0
