"""Small models of other libraries with random weights, built here."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

SIDES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
PICTURE_SIDE = {**SIDES, "image_size": 64, "patch_size": 16}
WORDS = ["<pad>", "<unk>", "<eos>", "a", "red", "bicycle", "dog", "the", "photo", "of"]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def photograph() -> Image.Image:
    x, y = np.meshgrid(np.linspace(0, 9, 150), np.linspace(0, 7, 100))
    return Image.fromarray(np.uint8(127 + 120 * np.stack([np.sin(x), np.cos(y), np.sin(x + y)], -1)))


@pytest.fixture
def tokenizer() -> Any:
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 2)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", unk_token="<unk>", eos_token="<eos>"
    )


@pytest.fixture
def clip() -> Any:
    transformers = pytest.importorskip("transformers")
    text = {**SIDES, "vocab_size": len(WORDS), "max_position_embeddings": 16}
    text |= {"eos_token_id": 2, "bos_token_id": 0, "pad_token_id": 0}
    config = transformers.CLIPConfig(text_config=text, vision_config=PICTURE_SIDE, projection_dim=16)
    return transformers.CLIPModel(config)


@pytest.fixture
def clip_processor(tokenizer: Any) -> Any:
    import transformers

    pictures = transformers.CLIPImageProcessor(size={"shortest_edge": 64}, crop_size={"height": 64, "width": 64})
    return transformers.CLIPProcessor(pictures, tokenizer)


@pytest.fixture
def vit() -> Any:
    transformers = pytest.importorskip("transformers")
    names = {0: "tabby", 1: "lynx", 2: "fox"}
    return transformers.ViTForImageClassification(transformers.ViTConfig(**PICTURE_SIDE, id2label=names))


@pytest.fixture
def vit_processor() -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.ViTImageProcessor(size={"height": 64, "width": 64})
