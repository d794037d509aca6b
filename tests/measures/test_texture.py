import pytest
import torch
from torch import Tensor, nn

import fovea
from checks import left_as_found, raises, refused
from fovea.measures.attacks import Texture, Victims
from fovea.measures.texture import Spectrum, distance, features, gram, stages, statistics, synthesize
from fovea.networks import normalization_of
from fovea.pictures import Prepare


class Narrowing(nn.Module):
    """Three resolutions, an activation that writes over its input and is used twice, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.second = nn.Conv2d(8, 12, 3, stride=2, padding=1)
        self.third = nn.Conv2d(12, 12, 3, stride=2, padding=1)
        self.last = nn.Linear(12, 4)
        self.ended = 0

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.first(x))
        x = self.third(self.relu(self.second(x)))
        x = self.last(x.mean((2, 3)))
        self.ended += 1
        return x


@pytest.fixture
def net() -> fovea.Network:
    torch.manual_seed(0)
    return fovea.wrap(Narrowing().eval(), Prepare((16, 16), (0.5,) * 3, (0.5,) * 3, None), 4)


@pytest.fixture
def stripes() -> Tensor:
    """Bright columns, four pixels apart, on dark red."""
    pixels = torch.tensor([120.0, 20.0, 20.0]).view(1, 3, 1, 1).repeat(1, 1, 16, 16)
    pixels[..., ::4] = 230.0
    return pixels


def test_a_gram_matrix_knows_what_but_not_where() -> None:
    cells = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])  # 1,k,P
    assert gram(cells).tolist() == [[[2.5, 5.5], [5.5, 12.5]]]
    many = torch.randn(1, 5, 30)
    assert torch.allclose(gram(many), gram(many[:, :, torch.randperm(30)]), atol=1e-6)


def test_every_layer_counts_alike() -> None:
    goal = [torch.ones(1, 2, 2), torch.full((1, 3, 3), 1000.0)]
    assert float(distance(goal, goal)) == 0
    assert float(distance([one * 1.5 for one in goal], goal)) == pytest.approx(2 * 0.25)


def test_the_layers_are_the_last_of_each_resolution_but_the_coarsest(net: fovea.Network) -> None:
    assert stages(net, torch.zeros(1, 3, 16, 16)) == ("relu", "second")
    alone = fovea.wrap(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()), net.transform, 4)
    assert stages(alone, torch.zeros(1, 3, 16, 16)) == ("1",)
    flat = fovea.wrap(nn.Sequential(nn.Flatten(), nn.Linear(768, 4)), net.transform, 4)
    raises(fovea.BadNetwork, "no layer whose output has rows and columns", stages, flat, torch.zeros(1, 3, 16, 16))


def test_features_are_those_before_they_are_written_over_and_nothing_is_run_after_them(net: fovea.Network) -> None:
    x = torch.randn(1, 3, 16, 16)
    seen = features(net, ["first", "relu"], x)
    assert float(seen["first"].detach().min()) < 0
    assert torch.equal(seen["relu"], seen["first"].relu())
    assert net.module.ended == 0
    assert not any(one._forward_hooks for one in net.module.modules())


def test_pixels_count_where_no_layer_is_as_fine_as_they_are(net: fovea.Network, stripes: Tensor) -> None:
    normal = normalization_of(net)
    assert [len(one[0]) for one in statistics(net, normal, ["relu", "second"], stripes)] == [8, 12]
    coarse = statistics(net, normal, ["second"], stripes)
    assert [len(one[0]) for one in coarse] == [12, 4, 6]  # colors and 1; differences across and down
    mean = (stripes / 127.5 - 1).mean((2, 3))
    assert torch.allclose(coarse[1][0, 3, :3], mean[0], atol=1e-5)
    assert float(coarse[2][0, 3:, 3:].detach().abs().max()) == pytest.approx(0, abs=1e-6)  # nothing changes downwards


def test_a_spectrum_is_the_picture(stripes: Tensor) -> None:
    for size in ((16, 16), (15, 11)):
        pixels = torch.rand(1, 3, *size) * 255
        spectrum = Spectrum.like(pixels)
        assert torch.allclose(spectrum.pixels(spectrum.of(pixels)), pixels, atol=1e-2)


def test_white_noise_becomes_the_texture(net: fovea.Network, stripes: Tensor) -> None:
    seen: list[tuple[int, int]] = []
    made = synthesize(net, stripes, 40, progress=lambda *now: seen.append(now))
    normal, layers = normalization_of(net), stages(net, stripes)
    goal = statistics(net, normal, layers, stripes)
    noise = torch.rand(stripes.shape, generator=torch.Generator().manual_seed(0)) * 255
    before, after = (float(distance(statistics(net, normal, layers, one), goal).detach()) for one in (noise, made))
    assert after < 0.02 * before
    assert (float(made.min()) >= 0, float(made.max()) <= 255) == (True, True)
    red, green, blue = made.mean((2, 3))[0].tolist()
    assert red > max(green, blue) + 40
    assert not torch.allclose(made, stripes, atol=30)  # elsewhere than they were
    assert seen[-1] == (40, 40)
    assert seen == sorted(seen)


def test_a_picture_has_its_own_noise_whatever_its_batch(net: fovea.Network, stripes: Tensor) -> None:
    two = synthesize(net, stripes.repeat(2, 1, 1, 1), 3, seed=5)
    assert torch.equal(two[1:], synthesize(net, stripes, 3, seed=6))
    assert not torch.equal(two[0], two[1])
    victims = Victims(stripes.repeat(2, 1, 1, 1), torch.zeros(2), [5, 6])
    told: list[int] = []
    assert torch.equal(Texture(3.0, net)(victims, told.append), two)
    assert told[-1] == 6


def test_a_flat_picture_stays_finite(net: fovea.Network) -> None:
    made = synthesize(net, torch.full((1, 3, 16, 16), 200.0), 60, ["second"])
    assert bool(made.isfinite().all())
    assert float(made.mean()) == pytest.approx(200, abs=20)


def test_the_network_is_left_as_found(net: fovea.Network, stripes: Tensor) -> None:
    with torch.inference_mode(), left_as_found(net.module.train()):
        synthesize(net, stripes.clone(), 2)


def test_what_cannot_be_is_refused(net: fovea.Network, stripes: Tensor) -> None:
    refused("no layer 'secnd' in Narrowing; did you mean 'second'", synthesize, net, stripes, 2, ["secnd"])
    refused("layer 'last' gives no map", synthesize, net, stripes, 2, ["last"])
    refused("at least 1 iteration", synthesize, net, stripes, 0)
