"""A head that begins with an affine layer gives the same for any filter once that layer was run cell by cell."""

import pytest
import torch
from timm.models.vgg import ConvMlp
from torch import Tensor, nn

import fovea
from fovea.networks import as_found, cut


class Stacked(nn.Module):
    """As timm's VGG: its first linear layer is a convolution, in a layer that asks for the map's size."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.mlp = nn.Conv2d(3, 4, 3, 2, 1), ConvMlp(4, 6, kernel_size=4)
        self.fc = nn.Linear(6, 5)

    def forward_features(self, x: Tensor) -> Tensor:
        features: Tensor = self.features(x)
        return features

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        x = self.mlp(x).mean((2, 3))
        return x if pre_logits else self.fc(x)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


torch.manual_seed(0)
HEADS = {
    "linear layers": nn.Sequential(
        nn.Conv2d(3, 4, 3, 2, 1),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(64, 6),
        nn.ReLU(True),
        nn.Dropout(),
        nn.Linear(6, 5),
    ),
    "a convolution": Stacked(),
    "nothing to fold": nn.Sequential(nn.Conv2d(3, 5, 3, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Tanh()),
}


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("size", [8, 6])
def test_a_fold_is_the_head(kind: str, size: int) -> None:
    torch.manual_seed(0)
    net, batch = fovea.wrap(HEADS[kind].eval(), labels=5), torch.randn(3, 3, size, size)
    with as_found(net):
        opened = cut(net, batch).open(batch)
        folded = opened.folded()
    assert (folded.fold is None) == (kind == "nothing to fold")
    f = torch.randn(3, opened.layout.cells, requires_grad=True)
    outputs = [folded.filtered(f), opened.filtered(f)]
    slopes = [torch.autograd.grad(output.square().sum(), f)[0] for output in outputs]
    for one, other in (outputs, slopes):
        assert torch.allclose(one, other, atol=1e-5)
    rows = torch.tensor([2, 0, 2, 1])
    assert torch.allclose(folded.take(rows).filtered(f[rows]), outputs[1][rows], atol=1e-5)
