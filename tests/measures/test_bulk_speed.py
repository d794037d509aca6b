from pathlib import Path

import pytest

import fovea
import made_job


def test_engines_beside_bare_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fovea.measures.bulk_speed.find_spec", lambda name: None)  # a cluster has tests of its own
    folder = made_job.pictures(tmp_path / "photos", 3, bad=1)
    found = fovea.measure("bench bulk", made_job.network(), str(folder), count=5, rounds=1)
    bare, local, page = found.rows
    assert [row["engine"] for row in found.rows] == ["bare", "local", "local, with a page"]
    assert page["per_second"] > 0
    assert bare["x_bare"] == local["x_local"] == 1
    assert local["x_bare"] == pytest.approx(local["per_second"] / bare["per_second"], rel=0.02, abs=0.001)
    assert local["per_second"] > 0 <= local["start_s"]
    assert [Path(name).name for name, _ in found.skipped] == ["0001.png"]
    assert sorted(path.name for path in folder.iterdir()) == ["0000.png", "0001.png", "0002.png"]
