"""Bulk work in this process: the rows that the verb itself gives, once each, whatever happened before."""

import json
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from typer.testing import CliRunner

import fovea
import made_job
from commands import ran
from fovea import cli
from fovea.basics import BadChoice, BadPicture
from fovea.jobs import Bulk
from fovea.networks import Network


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_job.pictures(tmp_path_factory.mktemp("job") / "photos", 150, bad=7)


@pytest.fixture(scope="module")
def net() -> Network:
    return made_job.network()


def by_name(done: Bulk) -> dict[str, Any]:
    rows = list(done.rows())
    found = {row.name: row for row in rows}
    assert len(found) == len(rows)
    return found


def test_rows_are_those_of_the_verb_and_maps_are_arrays(folder: Path, net: Network, tmp_path: Path) -> None:
    done = fovea.bulk(net, folder, tmp_path / "out", method="gradcam")
    assert (done.pictures, done.already) == (149, 0)
    assert [Path(name).name for name, _ in done.skipped] == ["0007.png"]
    rows = by_name(done)
    with pytest.warns(UserWarning, match="skipped"):
        heatmaps = fovea.explain(net, folder, method="gradcam")
    assert len(rows) == 150
    assert "not a picture" in rows[str(folder / "0007.png")].reason
    for heatmap in heatmaps:
        row = rows[heatmap.name]
        assert row.row["label"] == heatmap.label
        assert row.row["probability"] == pytest.approx(heatmap.probability, rel=1e-5)
        np.testing.assert_allclose(row.maps["gradcam"], heatmap.values.numpy(), atol=1e-5)
    assert json.loads((tmp_path / "out/_job.json").read_text())["settings"]["methods"] == ["gradcam"]


def test_any_reader_of_parquet_reads_the_folder(folder: Path, net: Network, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    fovea.bulk(net, folder, tmp_path, verb="predict", top=2)
    table = pq.read_table(tmp_path)
    assert table.num_rows == 150
    assert set(table.column_names) == {"name", "label", "probability", "row", "maps", "reason"}
    row = json.loads(next(row for row in table.to_pylist() if row["row"])["row"])
    assert len(row["predictions"]) == 2


def test_asked_again_it_does_what_is_left_and_nothing_else(
    folder: Path, net: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fovea.bulk(net, folder, tmp_path, verb="predict")
    parts = sorted(tmp_path.glob("*.parquet"))
    before = {part: part.stat().st_mtime_ns for part in parts}
    parts[0].unlink()
    again = fovea.bulk(net, folder, tmp_path, verb="predict")
    assert again.pictures == first.pictures
    assert 0 < again.already < again.pictures
    assert again.skipped == first.skipped  # of the chunks that were there, too
    assert all(part.stat().st_mtime_ns == before[part] for part in parts[1:])
    assert by_name(again).keys() == by_name(first).keys()
    assert fovea.bulk(net, folder, tmp_path, verb="predict", fresh=True).already == 0


def test_stopped_in_the_middle_it_goes_on(folder: Path, net: Network, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fovea.bulk(net, folder, tmp_path, verb="predict", progress=stop)
    left = list(tmp_path.glob("*.parquet"))
    done = fovea.bulk(net, folder, tmp_path, verb="predict")
    assert 0 < done.already < 149
    assert len(by_name(done)) == 150 > 0 < len(left)


def test_pictures_that_came_changed_or_went(net: Network, tmp_path: Path) -> None:
    folder = made_job.pictures(tmp_path / "photos", 5)
    fovea.bulk(net, folder, tmp_path / "out", verb="predict")
    (folder / "0000.png").unlink()
    made_job.pictures(folder / "more", 2)
    done = fovea.bulk(net, folder, tmp_path / "out", verb="predict")
    assert {str(Path(name).relative_to(folder)) for name in by_name(done)} == {
        "0001.png", "0002.png", "0003.png", "0004.png", "more/0000.png", "more/0001.png"
    }  # fmt: skip


def test_what_cannot_be_found_for_a_moment_keeps_its_rows(net: Network, tmp_path: Path) -> None:
    given = [made_job.pictures(tmp_path / name, 3) for name in ("a", "b")]
    fovea.bulk(net, given, tmp_path / "out", verb="predict", chunk=3)
    given[1].rename(tmp_path / "away")
    done = fovea.bulk(net, given, tmp_path / "out", verb="predict", chunk=3)
    assert [name for name, _ in done.skipped] == [str(given[1])]
    assert len(list((tmp_path / "out").glob("*.parquet"))) >= 2
    (tmp_path / "away").rename(given[1])
    assert fovea.bulk(net, given, tmp_path / "out", verb="predict", chunk=3).pictures == 6


def test_parquet_files_of_others_stay(folder: Path, net: Network, tmp_path: Path) -> None:
    (tmp_path / "mine.parquet").write_bytes(b"mine")
    done = fovea.bulk(net, folder, tmp_path, verb="predict", fresh=True)
    assert (tmp_path / "mine.parquet").read_bytes() == b"mine"
    assert len(by_name(done)) == 150


def test_a_folder_is_of_one_job(folder: Path, net: Network, tmp_path: Path) -> None:
    fovea.bulk(net, folder, tmp_path, verb="predict")
    with pytest.raises(BadChoice, match="holds the results of predict with other settings"):
        fovea.bulk(net, folder, tmp_path, verb="predict", top=2)
    with pytest.raises(BadChoice, match="another network"):
        fovea.bulk(fovea.load("smallnet", classes=4), folder, tmp_path, verb="predict")


@pytest.mark.parametrize(
    ("verb", "name", "maps"),
    [("localize", "anchornet-imagenette", 1), ("zoom", "tnet-gtsdb", 0), ("explain", "twostream-cub100", 0)],
)
def test_every_verb(verb: str, name: str, maps: int, folder: Path, tmp_path: Path) -> None:
    given = sorted(folder.iterdir())[:3]
    done = fovea.bulk(name, given, tmp_path, verb=verb)
    rows = by_name(done)
    assert len(rows) == done.pictures == 3
    one = next(iter(rows.values()))
    assert one.row["label"] in fovea.load(name).labels
    assert len(one.maps) == maps


def test_to_and_from_an_object_store(folder: Path, net: Network, tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    for file in sorted(folder.iterdir())[:9]:
        store.pipe_file(f"/{tmp_path.name}/in/{file.name}", file.read_bytes())
    place = f"memory://{tmp_path.name}"
    done = fovea.bulk(net, f"{place}/in", f"{place}/out", method="gradcam", files=True)
    assert (done.pictures, len(done.skipped)) == (8, 1)
    rows = by_name(done)
    drawn = rows[f"memory:///{tmp_path.name}/in/0000.png"].row["files"]["maps"][0]
    names = {Path(name).name for name in store.ls(f"/{tmp_path.name}/out/_files", detail=False)}
    assert set(drawn.values()) <= names
    assert fovea.bulk(net, f"{place}/in", f"{place}/out", method="gradcam", files=True).already == 8


def test_what_cannot_be_is_refused_in_words(folder: Path, net: Network, tmp_path: Path) -> None:
    for words, given in (
        ("engine is local or ray; got 'rey'; did you mean 'ray'", {"engine": "rey"}),
        ("address and workers are of a cluster", {"workers": 3}),
        ("no task 'explian'; did you mean 'explain'", {"verb": "explian"}),
    ):
        with pytest.raises(BadChoice, match=words):
            fovea.bulk(net, folder, tmp_path, **given)
    with pytest.raises(BadPicture, match="no file or folder"):
        fovea.bulk(net, tmp_path / "none", tmp_path / "out")


def test_commands(folder: Path, tmp_path: Path) -> None:
    shard, out = made_job.tarred(folder, tmp_path / "s.tar"), tmp_path / "out"
    said = ran(f"predict {shard} --net smallnet --untrained --parquet --out {out}").stdout
    assert said.splitlines()[-2:] == ["predict: 149 done, 1 skipped", str(out)]
    said = ran(f"predict {shard} --net smallnet --untrained --parquet --out {out} --fresh").stdout
    assert "before" not in said


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("explain {} --fresh", "--fresh is for --parquet"),
        ("explain {} --workers 2", "--workers is for a Ray cluster"),
        ("predict {} --parquet --json x.json", "--json does not go with Parquet"),
        ("predict {} --out x", "--out is for --parquet"),
        ("localize {} --why --parquet", "without --why"),
        ("index {} --address auto", "--address is for a Ray cluster"),
        ("explain {} --parquet --server http://127.0.0.1:1", "do not go with --server"),
    ],
)
def test_words_that_do_not_go_together(line: str, words: str, folder: Path) -> None:
    done = CliRunner().invoke(cli.app, line.format(folder / "0000.png").split())
    assert done.exit_code != 0
    assert words in str(done.exception)
