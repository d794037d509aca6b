import torch

import fovea
from fovea.models.smallnet import SmallNet


def test_logits_are_of_a_soft_maximum_over_cells() -> None:
    torch.manual_seed(0)
    net = SmallNet(7, (4, 6)).eval()
    out = net(torch.randn(2, 3, 32, 40))
    assert out.features.shape == (2, 6, 8, 10)
    soft = out.features.flatten(2).exp().mean(2).log()
    assert torch.allclose(out.logits, net.classifier(soft), atol=1e-5)


def test_loaded_by_name_and_explained() -> None:
    net = fovea.load("smallnet", pretrained=False, classes=4, options={"side": 48, "widths": [4, 6]})
    assert (net.labels, net.transform.size) == (("0", "1", "2", "3"), (48, 48))
    assert fovea.explain(net, torch.randn(2, 3, 48, 48)).values.shape[-2:] == (12, 12)
