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


def test_loaded_by_name_saved_and_explained(tmp_path: object) -> None:
    net = fovea.load("smallnet", pretrained=False, classes=4, options={"side": 48, "widths": [4, 6]})
    assert (net.labels, net.transform.size) == (("0", "1", "2", "3"), (48, 48))  # type: ignore[union-attr]
    path = f"{tmp_path}/mine.safetensors"
    net.save(path)
    back = fovea.load(path)
    batch = torch.randn(2, 3, 48, 48)
    assert torch.equal(net(batch), back(batch))
    seen = fovea.explain(back, batch)
    assert seen.values.shape[-2:] == (12, 12)
