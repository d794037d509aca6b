import pytest
import torch
from torch import Tensor, nn

import fovea
from checks import raises, refused
from fovea.models.videonet import Features, VideoNet, VideoOptions, build, video_of
from fovea.networks import Network

TINY = {"channels": [8, 8, 16, 16], "stem_width": 8, "width": 6, "narrow": 2, "hidden": 5, "dimensions": 4, "size": 64}


def tiny(**options: object) -> Network:
    torch.manual_seed(0)
    return fovea.load("video/timm/resnet10t", pretrained=False, options=TINY | options)


def clips(count: int = 2, frames: int = 3, side: int = 64) -> Tensor:
    return torch.randn(count, frames, 3, side, side, generator=torch.Generator().manual_seed(1))


def plain(grid: tuple[int, int] = (2, 2)) -> VideoNet:
    """The features are the frames themselves."""
    torch.manual_seed(0)
    return VideoNet(nn.Identity(), grid, 3, grid, VideoOptions(None, None, 4, 2, 5, 4, 0.0)).eval()


def test_an_embedding_of_any_number_of_frames() -> None:
    network = tiny()
    assert (network.labels, network.layer) == (None, "shallow")
    assert video_of(network).grid == (2, 2)
    for frames in (1, 2, 5):
        out = network.module(clips(2, frames))
        assert out.embedding.shape == (2, 4)
        assert out.maps.shape == (2 * frames, 2, 2, 2)
    x = clips()
    assert torch.equal(network(x), network.module(x).embedding)


def test_where_things_are_and_in_which_order_counts() -> None:
    """A bright cell in other places, and the same frames in another order, give other embeddings."""
    module, x = plain(), torch.zeros(3, 3, 3, 2, 2)
    x[0, :, :, 0, 0] = x[1, :, :, 0, 1] = 1
    x[2, 0, :, 0, 0] = x[2, 1, :, 0, 1] = x[2, 2, :, 1, 1] = 1
    first, second, third = module(x).embedding
    back = module(x[2:].flip(1)).embedding[0]
    assert (first - second).abs().max() > 1e-3
    assert (third - back).abs().max() > 1e-3


def test_an_even_frame_gives_cells_of_zeros() -> None:
    """What all cells share is taken away, and nothing is added: all that is left is where something differs."""
    module = plain((4, 4))
    x = torch.full((1, 2, 3, 4, 4), 0.7)
    assert module(x).maps.abs().max() < 1e-5
    x[0, 1, :, 2, 3] = torch.tensor([3.0, -1.0, 2.0])
    maps = module(x).maps  # T,narrow,h,w
    assert maps[0].abs().max() < 1e-5
    assert (maps[1, :, 2, 3] != maps[1, :, 0, 0]).any()


def test_features_stay_as_they_are_in_training() -> None:
    network = tiny()
    module = video_of(network)
    module.train()
    assert module.shallow.training
    assert not any(one.training for one in module.features.modules())
    before = {key: value.clone() for key, value in module.features.state_dict().items()}
    module(clips()).embedding.sum().backward()
    assert all(torch.equal(value, before[key]) for key, value in module.features.state_dict().items())
    assert all(one.grad is None and not one.requires_grad for one in module.features.parameters())
    assert all(one.grad is not None for one in [*module.shallow.parameters(), *module.lstm.parameters()])


def test_features_found_before_give_the_same() -> None:
    module = video_of(tiny())
    x = clips()
    seen = module.look(x)
    assert seen.shape == (2, 3, 16, 2, 2)
    assert torch.equal(module(seen.as_subclass(Features)).embedding, module(x).embedding)


def test_cells_are_left_out_in_training_only() -> None:
    module = video_of(tiny(drop=0.5))
    x = clips()
    assert torch.equal(module(x).embedding, module(x).embedding)
    module.train()
    assert not torch.equal(module(x).embedding, module(x).embedding)


def test_an_earlier_layer_has_more_cells_and_leaves_the_rest_out() -> None:
    last, earlier = video_of(tiny()), video_of(tiny(layer="layer2"))
    assert (last.grid, earlier.grid, earlier.channels) == ((2, 2), (8, 8), 8)
    kept, all_of_it = ({name for name, _ in one.features.named_parameters()} for one in (earlier, last))
    assert any("layer2" in name for name in kept)
    assert not any("layer3" in name or "layer4" in name for name in kept)
    assert any("layer4" in name for name in all_of_it)


def test_an_earlier_layer_is_that_of_the_network_named(lite0: Network) -> None:
    network = fovea.load("video/efficientnet_lite0", options={"layer": "blocks.1", "size": 64})
    x, seen = clips(1, 2), list[Tensor]()
    hook = lite0.module.get_submodule("blocks.1").register_forward_hook(lambda _, __, out: seen.append(out))
    with torch.no_grad():
        lite0.module(x[0])
        hook.remove()
        assert torch.equal(video_of(network).look(x)[0], seen[0])
    assert (network.transform.size, network.transform.crop) == ((64, 64), None)


@pytest.mark.parametrize("layer", [None, "layer2"])
def test_filters_go_between_cnn_and_lstm(layer: str | None) -> None:
    """Maps N,T,1,h,w of the CNN's cells; each step of the descent runs the head alone."""
    network = tiny(layer=layer)
    grid = video_of(network).grid
    seen = fovea.explain(network, clips(), method=["l2caf-oblivious", "gradcam", "gradcam-abs"])
    for method, found in seen.items():
        assert found.frames
        assert tuple(found.values.shape) == (2, 3, 1, *grid)
        assert found.layer == "shallow"
        assert "whole network" not in found.note, method
    norms = seen["l2caf-oblivious"].values.flatten(3).norm(dim=3)
    assert norms.flatten().tolist() == pytest.approx([1.0] * 6, abs=1e-4)


def test_a_frames_filter_has_nothing_to_do_with_the_others() -> None:
    """The loss of each frame's filter is that of the head with the other frames' cells as they are."""
    network = tiny(layer="layer2")
    module, x = video_of(network), clips(1)
    found = fovea.explain(network, x, method=fovea.L2CAF(oblivious=True, signed=True))
    with torch.no_grad():
        out = module(x)
        for frame in range(3):
            cells = out.maps.clone()
            cells[frame] *= found.values[0, frame, 0]
            told, _ = module.lstm(cells.flatten(1).unsqueeze(0))
            loss = (module.embed(told[:, -1]) - out.embedding).square().sum()
            assert float(loss) == pytest.approx(float(found.loss[0, frame, 0]), rel=1e-3, abs=1e-6)


def test_what_it_refuses() -> None:
    for wrong, said in (
        (clips(side=32), r"frames of 64 x 64.*in 2 x 2 cells; got \(2, 3, 3, 32, 32\)"),
        (clips()[0], r"clips, N,T,C,H,W"),
        (clips()[:, :0], r"clips, N,T,C,H,W"),
    ):
        refused(said, tiny().module, wrong)
    for options, said in (
        ({"layer": "layr2"}, "no layer 'layr2'.*did you mean 'layer2'"),
        ({"size": 32}, r"gives? \(16, 1, 1\) for frames of 32 x 32.*an earlier layer=, or take a larger size="),
        ({"narrow": 0}, "narrow is a whole number, at least 1; got 0"),
        ({"hidden": "many"}, "hidden is a whole number"),
        ({"drop": 1.0}, "below 1; got 1.0"),
    ):
        refused(said, tiny, **options)
    refused("dimensions and no classes", fovea.load, "video/timm/resnet10t", pretrained=False, classes=3)
    refused("give a video/NAME", video_of, fovea.wrap(nn.Identity()))


def test_networks_whose_pictures_size_is_unknown_are_refused() -> None:
    raises(fovea.FoveaError, "no transform that tells how large", build, fovea.wrap(nn.Conv2d(3, 4, 3)), VideoOptions())
