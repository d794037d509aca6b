from pathlib import Path

import pytest
import torch
from torch import Tensor

import fovea
from fovea.data import PADDING
from fovea.models.anchoring import AnchorNetOutput, BranchOptions, BranchOutput, Decision
from fovea.models.anchornet_text import WINDOWS, AnchorNetText, MaskedAttention, spans


def exact(seed: int = 0, **options: bool) -> AnchorNetText:
    """In float64, so that what is independent is equal to the last digits."""
    torch.manual_seed(seed)
    net = AnchorNetText(2, 50, 12, BranchOptions(**options)).double().eval()
    return net


def sentence(words: int, length: int, seed: int = 1) -> Tensor:
    ids = torch.full((1, length), PADDING)
    ids[0, :words] = torch.randint(1, 50, (words,), generator=torch.Generator().manual_seed(seed))
    return ids


def test_the_tables() -> None:
    net = AnchorNetText(2, 10, 300)
    shapes = {name: tuple(one.shape) for name, one in net.named_parameters() if one.ndim == 3}
    assert shapes["head.0.weight"] == (32, 300, 1)
    assert shapes["head.1.weight"] == (64, 32, 1)
    for i, window in enumerate(WINDOWS):
        assert shapes[f"branches.{i}.features.0.weight"] == (128, 64, window)
        assert shapes[f"branches.{i}.attended.0.weight"] == (64, 128, 1)
    out = net(torch.ones(2, 59, dtype=torch.long))
    assert [one.evidence.shape for one in out.branches] == [(2, 2, 57), (2, 2, 55), (2, 2, 53)]


def test_attention_worked_out_by_hand() -> None:
    """Two channels over three cells, the last of them padding."""
    attention = MaskedAttention(2, torch.nn.Conv1d)
    with torch.no_grad():
        attention.compact.weight.copy_(torch.tensor([[[1.0], [0.0]]]))
        attention.compact.bias.zero_()
    x = torch.tensor([[[0.0, 2.0, 9.0], [1.0, 1.0, 9.0]]])
    g = torch.tensor([0.0, 2.0]).softmax(0)  # Eq. 6: of the first channel
    c = torch.stack([2 * g[1], torch.tensor(1.0)]).softmax(0)  # Eqs. 7, 8
    s = torch.stack([c[1], 2 * c[0] + c[1]]).softmax(0)  # Eqs. 9, 10
    found = attention.of(x, torch.tensor([[True, True, False]]))
    assert torch.allclose(found, torch.tensor([[*s, 0.0]]))


@pytest.mark.parametrize("branch", range(3))
def test_evidence_comes_from_the_words_of_the_cell_alone(branch: int) -> None:
    net, ids, window, cell = exact(), sentence(20, 20), WINDOWS[branch], 6
    before = net(ids).branches[branch].evidence[0, :, cell]
    for place in range(20):
        edited = ids.clone()
        edited[0, place] = ids[0, place] % 49 + 1
        change = (net(edited).branches[branch].evidence[0, :, cell] - before).abs().max()
        assert (change < 1e-12) == (not cell <= place < cell + window), place
    alone = net(ids[:, cell : cell + window]).branches[branch].evidence[0, :, 0]
    assert (alone - before).abs().max() < 1e-12


@pytest.mark.parametrize("words", [1, 4, 6, 7, 20])
@pytest.mark.parametrize("options", [{}, {"attention": False}])
def test_padding_changes_nothing(words: int, options: dict[str, bool]) -> None:
    net = exact(**options)
    short, long = (net(sentence(words, length)) for length in (max(words, 1), 59))
    for one, other in zip(short.branches, long.branches, strict=True):
        assert (one.logits - other.logits).abs().max() < 1e-12
        inside = max(words - (59 - other.evidence.shape[2]), 1)  # cells that lie in the sentence whole
        assert (other.activation[0, :, inside:] == 0).all()
    one, other = spans(short)[0], spans(long)[0]
    assert (one.branch, one.start, one.stop) == (other.branch, other.start, other.stop)
    assert one.stop <= max(words, WINDOWS[one.branch])
    batch = torch.cat([sentence(words, 59), sentence(30, 59)])
    assert (net(batch).logits[0] - short.logits[0]).abs().max() < 1e-12


@pytest.mark.parametrize("options", [{}, {"attention": False}, {"rescale": False}])
def test_logits_are_the_mean_of_f(options: dict[str, bool]) -> None:
    for one in exact(**options)(torch.cat([sentence(20, 30), sentence(5, 30)])).branches:
        assert (one.activation.mean(2) - one.logits).abs().max() < 1e-12
        assert (one.attention.sum(1) - 1).abs().max() < 1e-12


def test_without_attention_cells_weigh_alike_and_there_is_nothing_auxiliary() -> None:
    net = exact(attention=False).train()
    out = net(sentence(10, 12))
    assert out.branches[0].attention[0].tolist() == [pytest.approx(1 / 8)] * 8 + [0, 0]
    assert out.heads()["auxiliary"] == ()
    assert len(exact().train()(sentence(10, 12)).heads()["auxiliary"]) == 3
    assert exact()(sentence(10, 12)).heads()["auxiliary"] == ()  # in training only


def seen(evidence: list[list[float]], attention: list[float], scale: float = 1.0) -> BranchOutput:
    weighed = torch.tensor(attention)[None]
    values = torch.tensor(evidence)[None]
    return BranchOutput(values, weighed, (values * weighed).sum(2), None, scale)


def test_the_span_is_the_best_cell_of_all_maps_for_the_decided_class() -> None:
    branches = (
        seen([[8.0, 1.0, 1.0], [0.0, 2.0, 1.0]], [0.25, 0.5, 0.25], scale=3.0),
        seen([[0.0, 9.0, 9.0], [1.0, 3.0, 9.0]], [0.5, 0.5, 0.0], scale=3.0),
        seen([[9.0], [1.4]], [1.0]),
    )
    out = AnchorNetOutput(
        branches[0].logits, branches, Decision(torch.tensor([1]), torch.tensor([0]), torch.tensor([0.6]))
    )
    (span,) = spans(out)  # class 1: 0 1 .25 | .5 1.5 (padding) | 1.4
    assert (span.branch, span.start, span.stop, span.value) == (1, 1, 6, 1.5)
    (span,) = spans(out, torch.tensor([0]))
    assert (span.branch, span.start, span.stop, span.value) == (2, 0, 7, 9.0)


def test_evidence_below_zero_is_not_beaten_by_padding() -> None:
    branches = tuple(seen([[-5.0, -3.0, 7.0]], [0.5, 0.5, 0.0]) for _ in range(3))
    out = AnchorNetOutput(
        branches[0].logits, branches, Decision(torch.tensor([0]), torch.tensor([0]), torch.tensor([1.0]))
    )
    assert (spans(out)[0].start, spans(out)[0].value) == (1, -1.5)


def test_saved_with_its_vocabulary_it_reads_texts(tmp_path: Path) -> None:
    words = ["a", "fine", "film", "clichés"]
    options = {"words": words, "width": 8, "length": 12, "attention": False, "dropout": [0.1, 0.1, 0.2]}
    net = fovea.load("anchornet_text", classes=2, options=options)
    net.labels = ("negative", "positive")
    net.save(tmp_path / "mine.safetensors", half=True)
    back = fovea.load(tmp_path / "mine.safetensors")
    assert back.transform == net.transform
    assert back.labels == net.labels
    assert back.module.branches[0].attention is None
    texts = ["A fine film, no clichés", "unheard of"]
    assert back(texts).shape == (2, 2)
    assert torch.equal(back(texts), back(torch.stack([back.transform(one).ids for one in texts])))
    assert torch.allclose(back(texts[0]), net(texts[0]), atol=1e-2)
    more = fovea.load(tmp_path / "mine.safetensors", classes=5)
    assert more("a film").shape == (1, 5)
