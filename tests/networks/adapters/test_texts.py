from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import fovea
from fovea.pictures import Prepare


def test_where_is_a_text(clip: Any, clip_processor: Any, photograph: Image.Image) -> None:
    network = fovea.wrap(clip.train(), clip_processor)
    heatmap = fovea.explain(network, photograph, target="a red bicycle", method="gradcam")
    assert heatmap.targets == (("a red bicycle",),)
    assert heatmap.values.shape == (1, 1, 4, 4)
    assert clip.training
    another = fovea.explain(network, photograph, target="a dog", method="gradcam")
    assert not torch.allclose(heatmap.values, another.values)


def test_the_score_is_the_models_own(clip: Any, clip_processor: Any, photograph: Image.Image) -> None:
    texts = ["a red bicycle", "a dog"]
    network = fovea.wrap(clip.eval(), clip_processor)
    predicted = fovea.explain(network, photograph, target=texts, method="gradcam")[0].shown.predictions
    with torch.no_grad():
        given = clip_processor(text=texts, images=photograph, return_tensors="pt", padding=True)
        own = clip(**{name: given[name] for name in ("input_ids", "attention_mask", "pixel_values")})
    shares = own.logits_per_image.softmax(1)[0].tolist()
    assert dict(predicted) == pytest.approx(dict(zip(texts, shares, strict=True)), abs=5e-3)


def test_texts_as_classes(clip: Any, clip_processor: Any, photograph: Image.Image) -> None:
    network = fovea.wrap(clip, clip_processor, labels=["a dog", "a red bicycle", "the photo"])
    assert network([photograph]).shape == (1, 3)
    heatmaps = fovea.explain(network, photograph, target="top2", method="gradcam")
    assert set(heatmaps.targets[0]) < {"a dog", "a red bicycle", "the photo"}
    beside = fovea.explain(network, photograph, target="a bicycle", method="gradcam")  # any other text, too
    assert beside.targets == (("a bicycle",),)


def test_a_text_of_its_own_for_each_picture(clip: Any, clip_processor: Any, photograph: Image.Image) -> None:
    network = fovea.wrap(clip, clip_processor)
    both = [photograph, photograph.rotate(180)]
    each = fovea.explain(network, both, target=fovea.each(["a dog", "a red bicycle"]), method="gradcam")
    assert each.targets == (("a dog",), ("a red bicycle",))
    alone = fovea.explain(network, both[1], target="a red bicycle", method="gradcam")
    torch.testing.assert_close(each.values[1], alone.values[0], rtol=1e-3, atol=1e-6)


def test_an_encoder_without_a_text_explains_its_embedding(clip: Any, photograph: Image.Image) -> None:
    network = fovea.wrap(clip)  # the transform is the usual one for its config
    assert network.can("embedding")
    assert fovea.explain(network, photograph, method="gradcam").targets == (("output",),)
    with pytest.raises(fovea.BadChoice, match=r"'a dog' needs the model's tokenizer: fovea.wrap\(model, processor\)"):
        fovea.explain(network, photograph, target="a dog")


def test_siglip_has_a_probability_per_text(tokenizer: Any, photograph: Image.Image) -> None:
    import transformers

    sides = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    text, picture = {"vocab_size": 10, "max_position_embeddings": 16}, {"image_size": 64, "patch_size": 16}
    model = transformers.SiglipModel(
        transformers.SiglipConfig(text_config=sides | text, vision_config=sides | picture)
    ).eval()
    processor = transformers.SiglipProcessor(
        transformers.SiglipImageProcessor(size={"height": 64, "width": 64}), tokenizer
    )
    heatmap = fovea.explain(fovea.wrap(model, processor), photograph, target="a dog", method="gradcam")
    given = processor(
        text=["a dog"], images=photograph, return_tensors="pt", padding="max_length", max_length=16, truncation=True
    )
    with torch.no_grad():
        own = model(input_ids=given["input_ids"], pixel_values=given["pixel_values"]).logits_per_image.sigmoid()
    assert heatmap[0].shown.predictions == (("a dog", pytest.approx(float(own), abs=5e-3)),)


class OpenCLIP(nn.Module):
    """As open_clip has it: two encoders and no config."""

    def __init__(self) -> None:
        super().__init__()
        self.visual = nn.Sequential(nn.Conv2d(3, 8, 8, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.words = nn.EmbeddingBag(10, 8)

    def encode_image(self, image: Tensor) -> Tensor:
        return self.visual(image)

    def encode_text(self, text: Tensor) -> Tensor:
        return self.words(text)


def test_a_pair_of_encoders_with_a_tokenizer(photograph: Image.Image) -> None:
    network = fovea.wrap(
        OpenCLIP(),
        Prepare((64, 64)),
        tokenizer=lambda texts: torch.tensor([[len(word) % 10 for word in text.split()][:2] for text in texts]),
    )
    heatmap = fovea.explain(network, torch.randn(2, 3, 64, 64), target="red bicycle", method="gradcam")
    assert heatmap.values.shape == (2, 1, 8, 8)
