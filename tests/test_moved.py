"""Old import paths and names work for one more version, and say where their things are now."""

import subprocess
import sys

import pytest

import fovea


def test_old_paths_are_the_new_modules() -> None:
    code = (
        "import importlib, warnings\nfrom fovea import moved\n"
        "for path, now in moved.PATHS.items():\n"
        "    with warnings.catch_warnings(record=True) as caught:\n"
        "        warnings.simplefilter('always')\n"
        "        old = importlib.import_module(f'fovea.{path}')\n"
        "    new = importlib.import_module(f'fovea.{now}')\n"
        "    assert old is new and new.__spec__.name == new.__name__, path\n"
        "    said = [str(one.message) for one in caught if one.category is DeprecationWarning]\n"
        "    assert any(f'fovea.{path} is now fovea.{now}' in words for words in said), path"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_below_an_old_path_is_loaded_once() -> None:
    with pytest.warns(DeprecationWarning, match=r"fovea.nets.twostream is now fovea.models.twostream"):
        from fovea.nets.twostream import TwoStream  # type: ignore[import-not-found]
    from fovea.models import twostream

    assert TwoStream is twostream.TwoStream


def test_an_old_name_warns() -> None:
    with pytest.warns(DeprecationWarning, match=r"fovea.PAPER is now"):
        assert fovea.PAPER.rate == 0.5  # type: ignore[attr-defined]


def test_a_name_that_never_was() -> None:
    with pytest.raises(AttributeError, match="no_such"):
        fovea.no_such  # type: ignore[attr-defined]  # noqa: B018


def test_the_modules_of_measures_beside_the_function() -> None:
    code = (
        "import fovea, warnings\nwarnings.simplefilter('ignore')\n"
        "from fovea.measure import classify\nfrom fovea.measure.wsol import measure\n"
        "net = fovea.load('smallnet', classes=10)\n"
        "old = classify.measure(net, 'digits:limit=4,split=test')\n"
        "assert old.rows == fovea.measure('classify', net, 'digits:limit=4,split=test').rows\n"
        "assert callable(measure)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
