from pathlib import Path

import pytest
import torch

import fovea
from checks import refused
from fovea.models.textcnn import TextCNN


def test_the_maximum_of_a_filter_over_the_sentence_by_hand() -> None:
    """Vectors of one number: every filter of width w sums what it sees, so the best stretch decides."""
    net = TextCNN(2, 6, 1).eval()
    with torch.no_grad():
        net.embedding.weight.copy_(torch.tensor([[0.0], [1.0], [2.0], [-4.0], [8.0], [0.5]]))
        for one in net.filters:
            one.weight.fill_(1.0)
            one.bias.zero_()
    out = net(torch.tensor([[4, 1, 3, 2, 2, 4]]))  # 8 1 -4 2 2 8
    assert out.features[0, [0, 100, 200]].tolist() == [12.0, 8.0, 9.0]
    short = net(torch.tensor([[4, 1, 0, 0]]))  # shorter than every filter: each sees all of it
    assert short.features[0, [0, 100, 200]].tolist() == [9.0, 9.0, 9.0]
    below = net(torch.tensor([[3, 3, 3, 0, 0, 0]]))
    assert below.features.max() == 0  # ReLU, and no window of padding beats it


@pytest.mark.parametrize("words", [1, 3, 5, 7])
def test_padding_changes_nothing(words: int) -> None:
    torch.manual_seed(0)
    net = TextCNN(2, 30, 8).double().eval()
    ids = torch.randint(1, 30, (3, words))
    padded = torch.nn.functional.pad(ids, (0, 59 - words))
    assert (net(ids).logits - net(padded).logits).abs().max() < 1e-12


def test_saved_with_its_vocabulary(tmp_path: Path) -> None:
    net = fovea.load("textcnn", classes=3, options={"words": ["good", "bad"], "width": 4, "length": 9})
    net.save(tmp_path / "mine.safetensors")
    back = fovea.load(tmp_path / "mine.safetensors")
    assert torch.equal(back(["good , not bad", "bad"]), net(["good , not bad", "bad"]))
    refused("reads text, not pictures", fovea.explain, back, torch.zeros(20, 20, 3, dtype=torch.uint8).numpy())
    assert fovea.load(tmp_path / "mine.safetensors", classes=7)("good").shape == (1, 7)


@pytest.mark.parametrize("options", [{"dropout": 0.5}, {"dropout": [0, 0.5, 1.0]}, {"dropuot": [0, 0.2, 0.5]}])
def test_options_that_do_not_exist_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(fovea.BadChoice, match=r"dropout is three shares|dropuot") as error:
        fovea.load("textcnn", options={"words": [f"w{i}" for i in range(100)]} | options)
    assert "w99" not in str(error.value)  # a vocabulary is no message
