"""Cut anywhere: the head after the trunk is the network, and the layer found is the right one."""

import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn

import fovea
from checks import raises, refused
from conftest import Pooled, Through, seeded
from fovea.networks import Cut, Layout, as_found, cut, layout_of

CUTS = {
    "timm/resnet10t": ("timm", "forward_features", "channels first", (2, 2), 0),
    "timm/test_convnext": ("timm", "forward_features", "channels first", None, 0),
    "timm/swin_tiny_patch4_window7_224": ("timm", "forward_features", "channels last", (7, 7), 0),
    "timm/vit_tiny_patch16_224": ("graph", "blocks.11.norm1", "tokens", (14, 14), 1),
    "timm/densenet121": ("timm", "forward_features", "channels first", (2, 2), 0),
    "torchvision/resnet18": ("graph", "layer4", "channels first", (2, 2), 0),
    "torchvision/densenet121": ("graph", "relu after features", "channels first", (2, 2), 0),
    "torchvision/convnext_tiny": ("graph", "features", "channels first", (2, 2), 0),
    "torchvision/swin_t": ("graph", "permute", "channels first", (2, 2), 0),
    "torchvision/vit_b_16": ("graph", "encoder.layers.encoder_layer_11.ln_1", "tokens", (14, 14), 1),
    "torchvision/mobilenet_v3_small": ("graph", "features", "channels first", (2, 2), 0),
}


def opened(net: fovea.Network, batch: Tensor, layer: str | None = None) -> tuple[Cut, object]:
    with as_found(net):
        made = cut(net, batch, layer)
        return made, made.open(batch)


@pytest.mark.parametrize("name", CUTS)
def test_layer_is_found_without_help(name: str) -> None:
    torch.manual_seed(0)
    library, model = name.split("/")
    module = timm.create_model(model) if library == "timm" else torchvision.models.get_model(model, weights=None)
    for parameter in module.parameters():
        if parameter.ndim > 1 and not parameter.any():
            nn.init.normal_(parameter, std=0.02)  # some networks start with a last layer of zeros
    fixed = "224" in name or "vit_b" in name
    batch = torch.randn(2, 3, *((224, 224) if fixed else (64, 64)))
    net = fovea.wrap(module.eval(), labels=1000)
    made, inside = opened(net, batch)
    how, layer, kind, grid, prefix = CUTS[name]
    assert (made.how, made.layer, inside.layout.kind, inside.layout.prefix) == (how, layer, kind, prefix)
    assert grid is None or inside.layout.grid == grid
    with torch.no_grad():
        assert torch.allclose(inside.output, module(batch), atol=1e-4)
        assert torch.allclose(inside.head(inside.features.detach()), module(batch), atol=1e-4)
        rows = torch.tensor([1, 0, 1])
        f = torch.rand(3, inside.layout.cells)
        each = torch.stack([inside.filtered(row.expand(2, -1))[i] for row, i in zip(f, rows.tolist(), strict=True)])
        assert torch.allclose(inside.take(rows).filtered(f), each, atol=1e-4)
    seen = fovea.explain(net, batch, method=["gradcam", fovea.L2CAF(descent=fovea.Descent(most=5))])
    assert all(float(one.values.abs().max()) > 0 for one in seen.values())


def test_vgg_has_stacked_layers_and_iterates() -> None:
    torch.manual_seed(0)
    module = torchvision.models.vgg11(weights=None, num_classes=10, init_weights=False)
    module.classifier = nn.Sequential(
        nn.Linear(512 * 49, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10)
    )
    net = fovea.wrap(module.eval(), labels=10)
    batch = torch.randn(1, 3, 64, 64)
    made, inside = opened(net, batch)
    assert (made.how, made.layer, inside.layout.grid) == ("graph", "features", (2, 2))
    seen = fovea.explain(net, batch)
    assert seen.solver == "iterative"
    assert seen.values.norm().item() == pytest.approx(1, abs=1e-4)


def test_untrained_head_of_zeros_still_finds_the_layer() -> None:
    module = timm.create_model("vit_tiny_patch16_224", depth=2).eval()
    nn.init.zeros_(module.head.weight)
    made, _ = opened(fovea.wrap(module, labels=1000), torch.randn(1, 3, 224, 224))
    assert made.layer == "blocks.1.norm1"


def test_named_layer_or_module(pooled: Pooled, batch: Tensor) -> None:
    net = fovea.wrap(pooled, labels=5)
    by_name = fovea.explain(net, batch, method="gradcam", layer="trunk.0")
    by_module = fovea.explain(net, batch, method="gradcam", layer=pooled.trunk[0])
    assert by_name.layer == by_module.layer == "trunk.0"
    assert by_name.grid == (12, 12)
    assert torch.equal(by_name.values, by_module.values)


def test_layer_inside_a_residual_block() -> None:
    """What else the rest of the network needs goes along."""
    torch.manual_seed(0)
    module = timm.create_model("resnet10t").eval()
    batch = torch.randn(2, 3, 64, 64)
    net = fovea.wrap(module, labels=1000)
    made, inside = opened(net, batch, "layer4.0.conv1")
    assert made.how == "graph"
    assert not inside.free
    with torch.no_grad():
        assert torch.allclose(inside.head(inside.features.detach()), module(batch), atol=1e-5)
        assert torch.allclose(inside.head(inside.features.detach()), module(batch), atol=1e-5), "a second run differs"


def test_map_before_an_in_place_relu_is_the_one_before(batch: Tensor) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3, 4), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    ).eval()
    _, inside = opened(fovea.wrap(module, labels=3), batch, "0")
    assert torch.allclose(inside.features, module[0](batch))
    assert float(inside.features.detach().min()) < 0


def test_untraceable_network_is_cut_by_a_hook(branching: nn.Module, batch: Tensor) -> None:
    net = fovea.wrap(branching, labels=5)
    made, inside = opened(net, batch)
    assert (made.how, made.layer, inside.whole) == ("hook", "inner.relu", True)
    same = fovea.explain(fovea.wrap(branching.inner, labels=5), batch, method=["cam", "gradcam", "l2caf"])
    for name, seen in fovea.explain(net, batch, method=["cam", "gradcam", "l2caf"]).items():
        assert torch.allclose(seen.values, same[name].values, atol=1e-5)
    slow = fovea.explain(net, batch, method=fovea.L2CAF(solver="iterative"))
    assert slow.solver == "vanilla"
    assert "whole network" in slow.note


def test_replacing_a_layer_makes_a_new_cut(pooled: Pooled, batch: Tensor) -> None:
    net = fovea.wrap(pooled, labels=5)
    before = fovea.explain(net, batch, method="cam", target=[0]).values
    pooled.fc = nn.Linear(6, 5)
    after = fovea.explain(net, batch, method="cam", target=[0]).values
    features = pooled.relu(pooled.trunk(batch))
    assert not torch.allclose(before, after)
    assert torch.allclose(after[:, 0], torch.einsum("nkhw,k->nhw", features, pooled.fc.weight[0]), atol=1e-5)


def test_moved_buffers_make_a_new_cut(batch: Tensor) -> None:
    class Gained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.fc = nn.Conv2d(3, 4, 3, 4), nn.Linear(4, 3)
            self.register_buffer("gain", torch.tensor(1.0))

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(torch.relu(self.conv(x * self.gain)).mean((2, 3)))

    module = seeded(Gained)
    net = fovea.wrap(module, labels=3)
    before = fovea.explain(net, batch, method="cam", target=[0]).values
    module.gain = torch.tensor(3.0)
    assert not torch.allclose(before, fovea.explain(net, batch, method="cam", target=[0]).values)


def test_tracing_takes_another_branch_and_leaves_no_trace(batch: Tensor) -> None:
    class Sly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.fc, self.last = nn.Conv2d(3, 4, 3, 4), nn.Linear(4, 3), None

        def forward(self, x: Tensor) -> Tensor:
            x = x * torch.tensor(2.0)
            self.last = x
            if isinstance(x, Tensor):
                x = x - 1
            return self.fc(torch.relu(self.conv(x)).mean((2, 3)))

    module = seeded(Sly)
    names = set(vars(module))
    made, inside = opened(fovea.wrap(module, labels=3), batch)
    assert made.how == "hook"
    with torch.no_grad():
        assert torch.allclose(inside.output, module(batch))
    assert set(vars(module)) == names
    assert isinstance(module.last, Tensor)


@pytest.mark.parametrize(
    ("features", "batch", "expected"),
    [
        ((1, 512, 7, 7), (1, 3, 224, 224), Layout("channels first", (7, 7))),
        ((1, 7, 7, 512), (1, 3, 224, 224), Layout("channels last", (7, 7))),
        ((1, 7, 14, 96), (1, 3, 224, 448), Layout("channels last", (7, 14))),
        ((1, 197, 192), (1, 3, 224, 224), Layout("tokens", (14, 14), 1)),
        ((1, 198, 192), (1, 3, 224, 224), Layout("tokens", (14, 14), 2)),
        ((1, 1 + 4 + 256, 64), (1, 3, 224, 224), Layout("tokens", (16, 16), 5)),
        ((1, 98, 64), (1, 3, 224, 448), Layout("tokens", (7, 14), 0)),
        ((1, 64, 100), (1, 2, 400), Layout("channels first", (100,))),
        ((1, 16, 64, 8), (1, 1, 64, 64), Layout("channels first", (64, 8))),
        ((1, 5 + 14 * 24, 64), (1, 3, 224, 384), Layout("tokens", (14, 24), 5)),
        ((1, 1 + 8 * 10, 64), (1, 3, 128, 160), Layout("tokens", (8, 10), 1)),
        ((1, 5 + 16, 64), (1, 3, 64, 64), Layout("tokens", (4, 4), 5)),
        ((6, 64, 4, 4), (2, 3, 3, 32, 32), Layout("channels first", (4, 4))),
        ((1, 8, 2, 3, 4), (1, 1, 8, 12, 16), Layout("channels first", (2, 3, 4))),
        ((1, 1000), (1, 3, 224, 224), None),
    ],
)
def test_layouts(features: tuple[int, ...], batch: tuple[int, ...], expected: Layout | None) -> None:
    assert layout_of(torch.zeros(features), torch.zeros(batch)) == expected


def test_wrong_layers_are_named(pooled: Pooled, branching: nn.Module, batch: Tensor) -> None:
    net, other = fovea.wrap(pooled, labels=5), fovea.wrap(branching, labels=5)
    layers = nn.Conv2d(3, 4, 2, 2), nn.LSTM(4, 4, batch_first=True), nn.Linear(4, 3)
    recurrent = Through(lambda x, conv, rnn, fc: fc(rnn(conv(x).flatten(2).mT)[0][:, -1]), *layers).eval()
    for one, layer, words in (
        (net, "trunc", "no layer 'trunc' in Pooled; did you mean 'trunk'"),
        (net, "trunk.9", r"no layer 'trunk\.9'.*did you mean .*'trunk\.2'"),
        (net, "fc", r"layer 'fc' gives \(5,\) per picture: no spatial extent"),
        (other, "inner.fc", "no spatial extent"),
        (net, nn.Conv2d(3, 3, 1), "not part of this network"),
        (net, nn.ReLU(), "not part of this network"),
        (fovea.wrap(recurrent, labels=3), "layers.1", "not one map"),
    ):
        refused(words, fovea.explain, one, batch, layer=layer)
    flat = fovea.wrap(nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 24, 4)), labels=4)
    raises(fovea.BadNetwork, "no layer of Sequential gives a spatial map", fovea.explain, flat, batch)
