import numpy as np
import pytest

from fovea.data import open_data

load_digits = pytest.importorskip("sklearn.datasets").load_digits


def test_all_of_them_in_two_parts() -> None:
    whole, train, test = (open_data(one) for one in ("digits", "digits:split=train", "digits:split=test"))
    assert (len(whole), len(train), len(test)) == (1797, 1437, 360)
    assert [one.label for one in whole.samples] == load_digits().target.tolist()
    assert all(sum(one.label == i for one in test.samples) >= 30 for i in range(10))


def test_sixteen_becomes_white() -> None:
    sample = open_data("digits:limit=1").samples[0]
    pixels = np.asarray(sample.source.read())
    assert pixels.shape == (8, 8, 3)
    assert (pixels[:, :, 0] == np.rint(load_digits().images[0] * 255 / 16)).all()
