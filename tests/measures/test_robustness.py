import os
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms import v2

import fovea
from checks import left_as_found, raises, refused
from fovea.data import DataSet, Pixels, Sample, Unreadable, open_data
from fovea.measures.attacks import FGSM, JPEG, Noise, Texture, Victims, attack_of, parsed
from fovea.measures.robustness import draw
from fovea.networks import normalization_of
from fovea.pictures import Prepare

measure = partial(fovea.measure, "robustness")
PREPARE = Prepare((8, 8), (0.5, 0.4, 0.3), (0.25, 0.2, 0.1), None)


class Linear(nn.Module):
    """Two logits, 0 and w x."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = nn.Parameter(weights)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        score = (self.dropout(x) * self.weights).sum((1, 2, 3))
        return torch.stack([torch.zeros_like(score), score], 1)


def weights() -> Tensor:
    return torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(0))


def net_of(weights: Tensor, transform: object = PREPARE) -> fovea.Network:
    return fovea.wrap(Linear(weights).eval(), transform, ("dark", "bright"))


@pytest.fixture
def net() -> fovea.Network:
    return net_of(weights())


def noise_set(count: int, size: int = 8) -> DataSet:
    pixels = np.random.default_rng(0).integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    samples = (Sample(f"{i}.png", i % 2, Pixels(one)) for i, one in enumerate(pixels))
    return DataSet("noise", tuple(samples), ("dark", "bright"))


def victims_of(pixels: Tensor) -> Victims:
    return Victims(pixels, torch.ones(len(pixels), dtype=torch.long), range(len(pixels)))


def quiet(done: int) -> None:
    pass


def test_fgsm_moves_every_pixel_by_epsilon_against_the_true_class(net: fovea.Network) -> None:
    """d loss / d x = (p - 1) w for class 1: each pixel moves by ε against its weight's sign, and not past 0 or 255."""
    pixels = torch.full((1, 3, 8, 8), 100.0)
    pixels[0, 0, 0, 0], pixels[0, 0, 0, 1] = 0.5, 254.0
    found = FGSM(2.0, net)(victims_of(pixels), quiet)
    assert torch.equal(found, (pixels - 2 * weights().sign()).clamp(0, 255))
    assert float((found - pixels).abs().max()) == 2


def test_fgsm_of_a_surrogate_follows_the_surrogates_gradient(net: fovea.Network) -> None:
    """The opposite network's worst direction is this one's best."""
    pixels = torch.full((1, 3, 8, 8), 100.0)
    found = FGSM(2.0, net_of(-weights()))(victims_of(pixels), quiet)
    assert torch.equal(found, pixels + 2 * weights().sign())
    larger = net_of(
        torch.ones(3, 16, 16), Prepare((16, 16), crop=None)
    )  # one of another input size is shown them larger
    assert torch.equal(FGSM(1.0, larger)(victims_of(pixels), quiet), pixels - 1)


def test_fgsm_leaves_the_network_as_found(net: fovea.Network) -> None:
    net.module.train().requires_grad_(False)
    with torch.inference_mode(), left_as_found(net.module):
        FGSM(1.0, net)(victims_of(torch.full((1, 3, 8, 8), 9.0)), quiet)


def test_noise_is_the_pictures_own_whatever_its_batch() -> None:
    pixels = torch.full((3, 3, 40, 40), 128.0)
    together = Noise(10.0)(victims_of(pixels), quiet)
    alone = Noise(10.0)(Victims(pixels[2:], torch.ones(1), [2]), quiet)
    assert torch.equal(together[2:], alone)
    assert not torch.equal(together[0], together[1])
    assert not torch.equal(together, Noise(10.0, seed=1)(victims_of(pixels), quiet))
    assert float((together - pixels).std()) == pytest.approx(10, rel=0.05)
    doubled = Noise(20.0)(victims_of(pixels), quiet)
    assert torch.allclose(doubled - pixels, 2 * (together - pixels), atol=1e-3)


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_loses_more_at_lower_quality(channels: int) -> None:
    ramp = torch.arange(32.0).mul(8).expand(1, channels, 32, 32).contiguous()
    losses = [float((JPEG(quality)(victims_of(ramp), quiet) - ramp).abs().mean()) for quality in (100, 50, 5)]
    assert losses == sorted(losses)
    assert losses[0] < 1 < losses[2]


def test_rows_before_and_after(net: fovea.Network) -> None:
    """Nothing changes at strength 0; an attack that knows the weights takes every right answer away."""
    data = noise_set(6)
    seen: list[tuple[int, int]] = []
    found = measure(
        net,
        data,
        attacks=["fgsm:0", "noise:0", "fgsm:255", "jpeg:100"],
        batch=4,
        progress=lambda *now: seen.append(now),
    )
    plain, fgsm, noise, strong, jpeg = found.rows
    assert (plain["attack"], plain["unchanged"], plain["images"]) == ("none", 1, 6)
    assert plain["top5"] is None  # of two classes
    for row in (fgsm, noise):
        assert (row["top1"], row["unchanged"]) == (plain["top1"], 1)
        assert (row["drop"], row["drop_low"], row["drop_high"]) == (0, 0, 0)  # the same pictures before and after
    assert strong["top1"] == 0
    assert strong["drop"] == plain["top1"]
    assert plain["low"] <= plain["top1"] <= plain["high"]
    assert (strong["drop_low"], strong["drop_high"]) == pytest.approx((plain["low"], plain["high"]), abs=0.02)
    assert strong["unchanged"] == pytest.approx(1 - plain["top1"])
    assert (jpeg["attack"], jpeg["strength"]) == ("jpeg", 100)
    assert seen[-1] == (30, 30)
    assert seen == sorted(seen)


def test_batches_do_not_matter_and_bad_pictures_are_reported(net: fovea.Network) -> None:
    data = noise_set(5)
    bad = Sample("bad.png", 0, Unreadable("cut short"))
    data = DataSet(data.name, (*data.samples[:2], bad, *data.samples[2:]), data.labels)
    attacks = ["fgsm:3", "noise:40", "jpeg:20"]
    one, two = (measure(net, data, attacks=attacks, batch=batch) for batch in (1, 4))
    assert one.rows == two.rows
    assert one.skipped == [("bad.png", "cut short")]


def test_the_network_is_left_as_found(net: fovea.Network) -> None:
    with left_as_found(net.module.train()):
        measure(net, noise_set(2), attacks=["fgsm:2", "noise:5"])


def test_examples_are_shown_in_every_version(net: fovea.Network) -> None:
    found = measure(net, noise_set(20), attacks=["fgsm:2", "jpeg:30"], batch=3)
    assert [[one.attack for one in row] for row in found.extra] == [["plain", "fgsm 2", "jpeg 30"]] * 6
    assert all(one.label in ("dark", "bright") and one.probability >= 0.5 for row in found.extra for one in row)
    first = np.asarray(found.extra[0][0].image)
    assert np.array_equal(first, np.asarray(noise_set(1).samples[0].source.read()))
    assert draw(found).size[0] >= 3 * 8


def test_normalization_of_any_transform_is_found_by_trying() -> None:
    mean, std = PREPARE.mean, PREPARE.std
    steps = [v2.Resize((8, 8)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)]
    known = normalization_of(net_of(weights()))
    probed = normalization_of(net_of(weights(), v2.Compose(steps)))
    assert probed.scale == pytest.approx(known.scale, rel=1e-4)
    assert probed.shift == pytest.approx(known.shift, rel=1e-4)
    assert probed.size == known.size == (8, 8)
    pixels = torch.rand(2, 3, 8, 8) * 255
    assert torch.allclose(known.to_pixels(known.to_tensors(pixels)), pixels, atol=1e-3)
    image = noise_set(1).samples[0].source.read()
    again = known.to_pixels(PREPARE(image).unsqueeze(0))
    assert torch.allclose(again[0].permute(1, 2, 0), torch.from_numpy(np.array(image)).float(), atol=1e-3)
    padded = normalization_of(net_of(weights(), v2.Compose([*steps[:3], v2.Pad(2), steps[3]])))
    assert padded.scale == pytest.approx(known.scale, rel=1e-4)


def planes(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float()


@pytest.mark.parametrize(
    "transform",
    [
        lambda image: (planes(image) - planes(image).mean()) / (planes(image).std() + 1),
        lambda image: PREPARE(image).flip(0),
        lambda image: (planes(image) / 255) ** 2.2,
    ],
    ids=["standardized", "backwards", "gamma"],
)
def test_a_transform_that_is_no_line_is_refused(transform: object) -> None:
    refused("must normalize each channel", normalization_of, net_of(weights(), transform))
    refused("no transform", normalization_of, fovea.wrap(Linear(weights())))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("fgms:2", "no attack 'fgms'; did you mean 'fgsm'"),
        ("noise", "as noise:10, where 10 is σ in 8-bit units, takes a number"),
        ("jpeg:0", "quality, 1 to 100, is 1 to 100; got 0"),
        ("jpeg:30.5", "takes a whole number; got '30.5'"),
        ("fgsm:-1", "is 0 to 255; got -1.0"),
        ("texture:inf", "takes a whole number"),
        ("noise:nan", "takes a number"),
    ],
)
def test_attacks_that_cannot_be(given: str, message: str, net: fovea.Network) -> None:
    refused(message, measure, net, noise_set(1), attacks=[given])


def test_attacks_by_name(net: fovea.Network) -> None:
    assert parsed(" fgsm:0.007 ") == ("fgsm", 0.007)
    for text, kind in (("fgsm:1", FGSM), ("noise:1", Noise), ("jpeg:1", JPEG), ("texture:1", Texture)):
        assert isinstance(attack_of(*parsed(text), net, net, 0), kind)
    refused("at least one attack", measure, net, noise_set(1), attacks=[])
    with pytest.raises(fovea.BadChoice, match="the surrogate must have the network's classes: it has 0 labels"):
        measure(net, noise_set(1), attacks=["fgsm:1"], surrogate=fovea.wrap(net.module, PREPARE))


def test_a_surrogate_of_other_classes_is_refused(net: fovea.Network) -> None:
    other = fovea.wrap(net.module, PREPARE, ("dark", "light"))
    with pytest.raises(fovea.BadChoice, match="class 1 is 'light' to it, 'bright' to the network"):
        measure(net, noise_set(1), attacks=["fgsm:1"], surrogate=other)
    numbered = fovea.wrap(net.module, PREPARE, 2)
    assert measure(net, noise_set(1), attacks=["fgsm:1"], surrogate=numbered).settings["labels"] == "matched by name"


def test_a_texture_net_that_is_not_at_hand(net: fovea.Network, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str, *_: object, **__: object) -> fovea.Network:
        raise fovea.BadNetwork("no connection")

    monkeypatch.setattr("fovea.networks.loading.load", load)
    raises(fovea.BadNetwork, "--texture-net efficientnet_lite0", measure, net, noise_set(1), attacks=["texture:2"])


@pytest.mark.skipif("FOVEA_DATA" not in os.environ, reason="needs the pack imagenet-val-3k")
def test_real_pictures(lite0: fovea.Network) -> None:
    """0.2 of 255 shades, which nobody sees, is enough to take many right answers away (AnchorNet, F)."""
    plain, weak, strong, jpeg = measure(
        lite0, open_data("imagenet-val-3k").first(24), attacks=["fgsm:0.2", "fgsm:2", "jpeg:90"]
    ).rows
    assert plain["top1"] > jpeg["top1"] - 0.1 > weak["top1"] > strong["top1"]
    assert jpeg["unchanged"] > 0.8
