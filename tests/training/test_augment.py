import pytest
import torch

from fovea.training.augment import crops, cut_out, draw, hidden, recolor
from fovea.training.recipe import AugmentPart
from fovea.training.repeatable import mixed


def test_draws_follow_from_seed_and_step_alone() -> None:
    assert torch.equal(draw(4, 1, 2), draw(4, 1, 2))
    assert not torch.equal(draw(4, 1, 2), draw(4, 2, 1))
    assert torch.equal(draw(4, 1, 2)[:2], draw(2, 1, 2))
    assert len({mixed(a, b) for a in range(100) for b in range(100)}) == 10_000


def test_windows_have_the_area_and_shape_asked_for_and_stay_inside() -> None:
    part = AugmentPart(area=[0.2, 0.5], aspect=[0.75, 4 / 3])
    sizes = torch.tensor([[300.0, 200.0]]).repeat(500, 1)
    windows = crops(draw(500, 0, 0), sizes, part)
    width, height = (windows[:, 2:] - windows[:, :2]).unbind(1)
    assert bool(((windows >= 0) & (windows <= 1 + 1e-6)).all())
    assert float((width * height).min()) == pytest.approx(0.2, abs=0.01)
    assert float((width * height).max()) == pytest.approx(0.5, abs=0.01)
    shape = width * 300 / (height * 200)
    assert float(shape.min()) >= 0.75 - 1e-4
    assert float(shape.max()) <= 4 / 3 + 1e-4


def test_without_settings_the_whole_picture_is_taken() -> None:
    windows = crops(draw(3, 0, 0), torch.tensor([[30.0, 20.0]] * 3), AugmentPart())
    assert torch.equal(windows, torch.tensor([[0.0, 0, 1, 1]] * 3))


def test_a_window_is_cut_out_and_flipped() -> None:
    """A ramp along x: each pixel's value is its column."""
    picture = torch.arange(8, dtype=torch.uint8).repeat(1, 1, 8, 1)  # 1,1,8,8
    right_half = torch.tensor([[0.5, 0.0, 1.0, 1.0]])
    plain = cut_out(picture, right_half, torch.tensor([False]), (8, 4))
    assert torch.allclose(plain[0, 0, 0], torch.tensor([4.0, 5, 6, 7]))
    flipped = cut_out(picture, right_half, torch.tensor([True]), (8, 4))
    assert torch.allclose(flipped[0, 0, 0], torch.tensor([7.0, 6, 5, 4]))


def test_colors() -> None:
    pixels = torch.full((1, 3, 2, 2), 100.0)
    pixels[0, 0] = 200
    middle = torch.full((1, 8), 0.5)
    part = AugmentPart(brightness=0.5, contrast=0.5, saturation=0.5)
    assert torch.allclose(recolor(pixels, middle, part), pixels)  # a factor of 1
    assert recolor(pixels, middle, AugmentPart()) is pixels
    brightest = middle.clone()
    brightest[0, 5] = 1
    assert float(recolor(pixels, brightest, part)[0, 1, 0, 0]) == pytest.approx(150)
    gray = middle.clone()
    gray[0, 7] = 0
    dull = recolor(pixels, gray, AugmentPart(saturation=1.0))
    assert float(dull.std(1).max()) == pytest.approx(0, abs=1e-4)  # no color is left


def test_hide_and_seek_hides_whole_squares() -> None:
    torch.manual_seed(0)
    shown = hidden(torch.ones(64, 3, 40, 40), AugmentPart(hide=0.5, hide_sizes=[0, 16]))
    untouched = [bool(one.all()) for one in shown]
    assert 16 < sum(untouched) < 48  # half of the pictures, those with the size 0
    for one in shown:
        assert torch.equal(one[0], one[2])
        for y, x in ((0, 0), (0, 16), (16, 32), (32, 32)):  # the last squares are cut off by the edge
            assert one[0, y : min(y + 16, 40), x : min(x + 16, 40)].unique().numel() == 1
    hidden_share = 1 - shown[[not one for one in untouched]].mean()
    assert float(hidden_share) == pytest.approx(0.5, abs=0.08)


def test_nothing_is_hidden_unless_asked_for() -> None:
    inputs = torch.randn(2, 3, 8, 8)
    assert hidden(inputs, AugmentPart()) is inputs
    assert not hidden(inputs, AugmentPart(hide=1.0, hide_sizes=[4])).any()
    with pytest.raises(ValueError, match="at least one size"):
        AugmentPart(hide_sizes=[])


def test_light_is_added_and_hues_turned_within_their_bounds() -> None:
    pixels, draws = torch.full((200, 3, 2, 2), 100.0), draw(200, 0, 0)
    lit = recolor(pixels, draws, AugmentPart(brightness_added=32 / 255))[:, 0, 0, 0]
    assert 68 <= float(lit.min()) < 70
    assert 130 < float(lit.max()) <= 132
    red = pixels * torch.tensor([1.0, 0.5, 0.5]).view(1, 3, 1, 1)
    turned = recolor(red, draws, AugmentPart(hue=0.2))
    assert torch.allclose(turned.amax((1, 2, 3)), torch.tensor(100.0))
    assert torch.allclose(turned.amin((1, 2, 3)), torch.tensor(50.0))
    assert 0 < float((turned[:, 1] > turned[:, 0]).float().mean()) < 0.5  # green leads beyond a sixth of the circle
    assert torch.equal(recolor(pixels[:, :1], draws, AugmentPart(hue=0.2)), pixels[:, :1])
