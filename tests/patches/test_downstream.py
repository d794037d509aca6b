"""Patches of one size run together; what is said of them is added up for every picture."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms import v2

import fovea
from fovea.networks import Network
from fovea.patches import PatchBatch, Settings, judged, look, patches, translated
from fovea.pictures import Prepare


@pytest.fixture(scope="module")
def anchornet() -> Network:
    torch.manual_seed(0)
    return fovea.load("anchornet", pretrained=False, classes=3, options={"side": 128})


class Colors(nn.Module):
    """The mean of each channel as a logit, and a note of every batch that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.given: list[tuple[int, ...]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.given.append(tuple(x.shape))
        return x.mean((2, 3)) * self.scale


def few(side: int, size: object) -> Settings:
    return Settings(2, 0.9, 1.0)


def test_patches_are_cut_where_their_boxes_are() -> None:
    batch = torch.arange(2 * 1 * 4 * 5).view(2, 1, 4, 5).float()
    cut = PatchBatch(2, torch.tensor([1, 0]), torch.tensor([[1, 2, 3, 4], [0, 0, 2, 2]])).cut(batch)
    assert torch.equal(cut[0], batch[1, :, 2:4, 1:3])
    assert torch.equal(cut[1], batch[0, :, 0:2, 0:2])


def test_softmaxes_are_added_per_picture(anchornet: Network) -> None:
    judge = fovea.wrap(Colors(), labels=["red", "green", "blue"])
    batch = torch.randn(5, 3, 128, 128, generator=torch.Generator().manual_seed(3)) * 4
    seen = look(anchornet, batch)
    cut = patches(seen, few, (128, 128))
    found = judged(anchornet, judge, batch, cut)
    for i in range(5):
        scale = seen.scales[int(seen.chosen[i])]
        (part,) = [one for one in cut if one.side == scale.side]
        boxes = part.boxes[part.owner == i].tolist()
        assert len(boxes) == 2
        single = [batch[i, :, y0:y1, x0:x1].mean((1, 2)).softmax(0) for x0, y0, x1, y1 in boxes]
        assert torch.allclose(found[i], torch.stack(single).mean(0), atol=1e-6)


def test_patches_of_one_size_run_together(anchornet: Network) -> None:
    module = Colors()
    answers = fovea.classify_patches(
        anchornet, fovea.wrap(module, labels=["r", "g", "b"]), torch.randn(6, 3, 128, 128), settings=few
    )
    assert len(module.given) == len({shape[-1] for shape in module.given})  # one run a size
    assert sum(shape[0] for shape in module.given) == 12
    assert len(answers) == 6
    assert torch.allclose(answers.values.sum(1), torch.ones(6))
    assert [one.label for one in answers] == [("r", "g", "b")[i] for i in answers.values.argmax(1).tolist()]
    assert all(one.patches == 2 for one in answers)


def test_values_are_translated_between_normalizations() -> None:
    pixels = torch.rand(1, 3, 4, 4)
    ours, theirs = Prepare((4, 4), (0.5,) * 3, (0.5,) * 3), Prepare((4, 4))
    one, two = (fovea.wrap(Colors(), transform=transform) for transform in (ours, theirs))
    assert torch.allclose(translated(ours.normalize(pixels * 255), one, two), theirs.normalize(pixels * 255), atol=1e-5)
    usual = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, True), v2.Normalize(theirs.mean, theirs.std)])
    two = fovea.wrap(Colors(), transform=usual)  # any other transform is asked what it does to colors
    assert torch.allclose(translated(ours.normalize(pixels * 255), one, two), theirs.normalize(pixels * 255), atol=1e-2)


def test_pictures_that_cannot_be_read_are_left_out(anchornet: Network, tmp_path: object) -> None:
    good = Image.fromarray(np.random.default_rng(0).integers(0, 256, (120, 150, 3), dtype=np.uint8))
    judge = fovea.wrap(Colors(), labels=3)
    with pytest.warns(UserWarning, match="1 picture"):
        answers = fovea.classify_patches(anchornet, judge, [good, f"{tmp_path}/none.png"])
    assert len(answers) == 1
    assert answers.skipped[0][0].endswith("none.png")


def test_a_classifier_that_takes_one_size_only_is_refused_clearly(anchornet: Network) -> None:
    fixed = nn.Sequential(nn.Flatten(), nn.Linear(3 * 128 * 128, 2))
    with pytest.raises(fovea.BadNetwork, match="does not take patches of"):
        fovea.classify_patches(anchornet, fovea.wrap(fixed, labels=2), torch.randn(1, 3, 128, 128))


def test_an_ordinary_network_as_localizer() -> None:
    net = fovea.load("smallnet", pretrained=False, classes=3, options={"side": 64, "widths": [4, 6]})
    module = Colors()
    fovea.classify_patches(net, fovea.wrap(module, labels=3), torch.randn(2, 3, 64, 64), side=16)
    assert {shape[2:] for shape in module.given} == {(16, 16)}
