from typing import Any

import pytest
import torch
import torchvision
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms.functional import pil_to_tensor

import fovea

SMALL = {"weights": None, "weights_backbone": None, "num_classes": 5, "min_size": 96, "max_size": 160}
FEW = {"rpn_pre_nms_top_n_test": 100, "rpn_post_nms_top_n_test": 60}
DETECTORS = {
    "fasterrcnn_mobilenet_v3_large_320_fpn": SMALL | FEW,
    "retinanet_resnet50_fpn": SMALL,
    "fcos_resnet50_fpn": SMALL,
    "ssdlite320_mobilenet_v3_large": {"weights": None, "weights_backbone": None, "num_classes": 5},
}


@pytest.fixture(params=DETECTORS)
def detector(request: pytest.FixtureRequest) -> Any:
    return torchvision.models.get_model(request.param, **DETECTORS[request.param])


@pytest.fixture
def rcnn() -> Any:
    return torchvision.models.get_model("fasterrcnn_mobilenet_v3_large_320_fpn", **SMALL, **FEW)


def sharpened(model: nn.Module) -> None:
    """Scores that differ, as random weights of the last layers do not make them."""
    for layer in model.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d)) and layer.weight.shape[0] in (5, 15, 30, 45):
            nn.init.normal_(layer.weight, std=0.3)


def test_a_class_by_its_best_box(detector: Any, photograph: Image.Image) -> None:
    sharpened(detector)
    detector.train()
    before = {name: value.clone() for name, value in detector.state_dict().items()}
    network = fovea.wrap(detector)
    heatmap = fovea.explain(network, [photograph, photograph], target=2, method="gradcam")
    assert heatmap.values.shape[:2] == (2, 1)
    assert heatmap.layer.startswith("backbone.")
    assert detector.training
    assert detector.transform.training
    assert all(torch.equal(value, before[name]) for name, value in detector.state_dict().items())
    box = fovea.explain(network, photograph, target=(20, 20, 120, 90), method="gradcam")
    assert box.targets == (("box 20 20 120 90",),)


def test_scores_are_the_detectors_own(rcnn: Any) -> None:
    """The best box of each class, as the detector reports it for a picture that it needs not pad."""
    sharpened(rcnn)
    image = Image.effect_noise((160, 96), 80).convert("RGB")
    with torch.no_grad():
        (found,) = rcnn.eval()([pil_to_tensor(image) / 255])
    assert len(found["scores"]) > 5
    scores = fovea.wrap(rcnn)([image])[0].sigmoid().detach()
    for label in set(found["labels"].tolist()):
        assert float(scores[label]) == pytest.approx(float(found["scores"][found["labels"] == label].max()), abs=1e-4)


def test_a_box_is_asked_for_in_the_users_pixels(rcnn: Any) -> None:
    """Of a picture twice the size of the input, the box that the detector reports has the score that it reports."""
    sharpened(rcnn)
    image = Image.effect_noise((320, 192), 80).convert("RGB")
    with torch.no_grad():
        (found,) = rcnn.eval()([pil_to_tensor(image) / 255])
    best = int(found["scores"].argmax())
    heatmap = fovea.explain(fovea.wrap(rcnn), image, target=found["boxes"][best], method="gradcam")
    assert heatmap[0].shown.predictions[0][1] == pytest.approx(float(found["scores"][best]), abs=1e-3)
    assert heatmap.values.amax() > 0
    x0, y0, x1, y1 = heatmap[0].boxes[0]
    assert 0 <= x0 < x1 <= 320
    assert 0 <= y0 < y1 <= 192


def test_padding_is_no_part_of_the_picture(rcnn: Any) -> None:
    network = fovea.wrap(rcnn)
    tensor, placement = network.prepare(Image.new("RGB", (300, 200), "white"))  # to 144 x 96, then to 160 x 96
    assert tuple(tensor.shape) == (3, 96, 160)
    assert placement.input == (160, 96)
    assert float(tensor[:, :, 150:].abs().max()) == 0 < float(tensor[:, :, 140].min())
    assert placement.scale == pytest.approx((300 / 144, 200 / 96), rel=0.01)
    assert placement.window == (0, 0, 300, 200)


def test_gradients_reach_the_backbone(rcnn: Any) -> None:
    sharpened(rcnn)
    network, kept, batch = fovea.wrap(rcnn), dict[str, Tensor](), torch.randn(1, 3, 96, 128)
    ours = fovea.explain(network, batch, target=3, method="gradcam")
    hook = rcnn.backbone.body["16"].register_forward_hook(lambda *all: kept.update(cells=all[2]))
    (gradient,) = torch.autograd.grad(network(batch)[0, 3], kept["cells"])
    hook.remove()
    theirs = (gradient.mean((2, 3), keepdim=True) * kept["cells"]).sum(1).relu()
    torch.testing.assert_close(ours.values[0], theirs.detach(), rtol=1e-3, atol=1e-8)


def test_boxes_that_are_none(rcnn: Any, photograph: Image.Image) -> None:
    with pytest.raises(fovea.BadChoice, match=r"x0 < x1 and y0 < y1"):
        fovea.explain(fovea.wrap(rcnn), photograph, target="90 10 20 50")
    with pytest.raises(fovea.BadChoice, match=r"no class 'cat' among the network's 5"):
        fovea.explain(fovea.wrap(rcnn), photograph, target="cat")
