from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import fovea
from fovea.networks.adapters.processors import Processed
from fovea.pictures import Prepare

transformers = pytest.importorskip("transformers")
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 64, "num_labels": 5}
STAGES = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": 5}
NETWORKS = {  # a class of transformers', its config, the cells of its last map
    "ViT": ({**SMALL, "intermediate_size": 64, "patch_size": 8}, (8, 8)),
    "DeiT": ({**SMALL, "intermediate_size": 64, "patch_size": 8}, (8, 8)),
    "Beit": ({**SMALL, "intermediate_size": 64, "patch_size": 8}, (8, 8)),
    "Dinov2": ({**SMALL, "mlp_ratio": 2, "patch_size": 8}, (8, 8)),
    "Dinov2WithRegisters": ({**SMALL, "mlp_ratio": 2, "patch_size": 8}, (8, 8)),
    "ResNet": ({**STAGES, "embedding_size": 8}, (8, 8)),
    "ConvNext": ({**STAGES, "num_stages": 2}, (8, 8)),
    "Swin": (
        {"image_size": 64, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 4, "num_labels": 5},
        (8, 8),
    ),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_classifiers_are_wrapped_by_their_config(kind: str, photograph: Image.Image) -> None:
    options, grid = NETWORKS[kind]
    model = getattr(transformers, f"{kind}ForImageClassification")(getattr(transformers, f"{kind}Config")(**options))
    model.train()
    none = kind == "Dinov2WithRegisters"  # transformers knows no processor for it
    network = fovea.wrap(model, transformers.BitImageProcessor(crop_size={"height": 64, "width": 64}) if none else None)
    assert network.labels == tuple(f"LABEL_{i}" for i in range(5))
    heatmap = fovea.explain(network, torch.randn(2, 3, 64, 64), method="gradcam", target="LABEL_3")
    assert heatmap.values.shape == (2, 1, *grid)
    assert heatmap.values.amax() > 0 or heatmap[0].diagnosis
    assert model.training
    seen = fovea.explain(network, photograph, method="gradcam", target=3)  # pictures come in by the config alone
    assert seen[0].shown.placement is not None
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_map_is_that_of_the_models_own_gradients(vit: Any) -> None:
    batch, kept = torch.randn(2, 3, 64, 64), dict[str, Tensor]()
    ours = fovea.explain(fovea.wrap(vit), batch, method="gradcam", target="fox", layer="vit.layers.1.layernorm_before")
    hook = vit.vit.layers[1].layernorm_before.register_forward_hook(lambda *all: kept.update(cells=all[2]))
    logits = vit.eval()(pixel_values=batch).logits
    hook.remove()
    (gradient,) = torch.autograd.grad(logits[:, 2].sum(), kept["cells"])
    cells, gradient = kept["cells"][:, 1:], gradient[:, 1:]  # without the class token
    theirs = (gradient.mean(1, keepdim=True) * cells).sum(-1).relu().view(2, 1, 4, 4)
    torch.testing.assert_close(ours.values, theirs.detach(), rtol=1e-4, atol=1e-7)


def test_a_processor_says_how_pictures_come_in(vit: Any, vit_processor: Any, photograph: Image.Image) -> None:
    network = fovea.wrap(vit, vit_processor)
    assert isinstance(network.transform, Prepare)  # so that --fit works
    theirs = vit_processor(images=photograph, return_tensors="pt")["pixel_values"][0]
    assert (network.prepare(photograph)[0] - theirs).abs().max() < 0.05
    assert network.labels == ("tabby", "lynx", "fox")


def test_a_processor_that_does_more_is_taken_as_it_is(vit: Any, photograph: Image.Image) -> None:
    gray = transformers.ViTImageProcessor(size={"height": 64, "width": 64}, do_rescale=False)
    network = fovea.wrap(vit, gray)
    assert isinstance(network.transform, Processed)
    prepared, placement = network.prepare(photograph)
    torch.testing.assert_close(prepared, gray(images=photograph, return_tensors="pt")["pixel_values"][0])
    np.testing.assert_allclose(placement.scale, (150 / 64, 100 / 64), rtol=0.02)


def test_encoders_alone_are_embeddings(photograph: Image.Image) -> None:
    model = transformers.ViTModel(transformers.ViTConfig(**{**SMALL, "intermediate_size": 64, "patch_size": 16}))
    network = fovea.wrap(model)
    assert network.can("embedding")
    assert network([photograph, photograph]).shape == (2, 32)
    assert fovea.explain(network, photograph, method="gradcam").targets == (("output",),)


def test_several_classes_at_once_have_a_probability_each(photograph: Image.Image) -> None:
    config = transformers.ViTConfig(
        **{**SMALL, "intermediate_size": 64, "patch_size": 16}, problem_type="multi_label_classification"
    )
    network = fovea.wrap(transformers.ViTForImageClassification(config))
    shares = dict(fovea.explain(network, photograph, method="gradcam")[0].shown.predictions)
    logits = network([photograph])[0].detach()
    assert shares == pytest.approx({f"LABEL_{i}": float(logits[i].sigmoid()) for i in range(5)}, abs=1e-5)


def test_segmentation_is_explained_by_a_mean_logit(photograph: Image.Image) -> None:
    config = transformers.SegformerConfig(
        hidden_sizes=[8, 8, 16, 16], num_attention_heads=[1, 1, 2, 2], decoder_hidden_size=16, num_labels=5
    )
    model = transformers.SegformerForSemanticSegmentation(config)
    network, batch = fovea.wrap(model), torch.randn(1, 3, 64, 96)
    heatmap = fovea.explain(network, batch, method="gradcam", target="LABEL_1")
    assert heatmap.values.shape == (1, 1, 2, 3)  # the narrowest map, not that of the answers
    torch.testing.assert_close(network(batch), model.eval()(batch).logits.mean((2, 3)))


def test_detection_by_queries(photograph: Image.Image) -> None:
    backbone = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], out_features=["stage2"])
    sides = {"d_model": 16, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    config = transformers.DetrConfig(
        use_timm_backbone=False, backbone=None, backbone_config=backbone, num_queries=16, num_labels=5, **sides, **heads
    )
    model = transformers.DetrForObjectDetection(config)
    network, batch = fovea.wrap(model, Prepare((64, 96), crop=None)), torch.randn(2, 3, 64, 96)
    scores = model.eval()(batch).logits.softmax(-1)[..., :5].amax(1)
    torch.testing.assert_close(network(batch).sigmoid(), scores)
    heatmap = fovea.explain(network, photograph, method="gradcam", target=["LABEL_2"])
    assert heatmap.values.shape == (1, 1, 8, 12)
    asked = fovea.explain(network, photograph, method="gradcam", target="10 10 90 80")
    assert asked.targets == (("box 10 10 90 80",),)


def test_what_comes_before_the_cut_runs_once(monkeypatch: pytest.MonkeyPatch, vit: Any) -> None:
    """Iterating over the head runs the last block again and again, and the first no more than the network is cut."""
    kind, runs = type(vit.vit.layers[0]), list[int]()
    forward = kind.forward

    def counted(self: Any, *args: Any, **named: Any) -> Any:
        runs.append(next(i for i, layer in enumerate(vit.vit.layers) if layer is self))
        return forward(self, *args, **named)

    monkeypatch.setattr(kind, "forward", counted)
    batch = torch.randn(2, 3, 64, 64)
    heatmap = fovea.explain(fovea.wrap(vit), batch, target="fox")
    assert heatmap.solver == "iterative"
    assert runs.count(1) > 10 > 5 > runs.count(0)
    assert "forward" not in vars(vit.vit.layers[0])
    vit.vit.layers[0].register_forward_hook(lambda *_: None)  # whoever listens hears every run
    runs.clear()
    listened = fovea.explain(fovea.wrap(vit), batch, target="fox")
    assert listened.solver == "vanilla"
    assert runs.count(0) == runs.count(1)
    torch.testing.assert_close(listened.values, heatmap.values, rtol=1e-3, atol=1e-4)
