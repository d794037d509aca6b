"""A real Ray cluster of two workers: the rows of this process, nothing lost or repeated when a worker or the head is
killed."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import fovea
import made_job
from fovea.basics import BadChoice
from fovea.jobs import Bulk, Cluster, Folder, joined
from fovea.networks import Network

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_job.pictures(tmp_path_factory.mktemp("cluster") / "photos", 1000, bad=7)


@pytest.fixture(scope="module")
def net() -> Network:
    return made_job.network()


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):  # of clusters that other tests started in this process
            patch.delenv(name, raising=False)
        with joined(None, 2) as found:
            yield found


def contents(done: Bulk) -> dict[str, Any]:
    rows = list(done.rows())
    found = {row.name: (row.row, row.reason, {name: each.tolist() for name, each in row.maps.items()}) for row in rows}
    assert len(found) == len(rows)
    return found


def test_a_thousand_pictures_have_the_same_rows(ray: Any, folder: Path, net: Network, tmp_path: Path) -> None:
    here = fovea.bulk(net, folder, tmp_path / "here", method="gradcam")
    told = list[int]()
    there = fovea.bulk(
        net, folder, tmp_path / "there", method="gradcam", engine="ray", workers=2,
        progress=lambda done, total: told.append(done),
    )  # fmt: skip
    assert contents(there) == contents(here)
    assert (there.pictures, there.already, len(there.skipped)) == (999, 0, 1)
    assert told[-1] == 1000
    assert len(told) > 5


def test_a_worker_that_is_killed_loses_and_repeats_nothing(
    ray: Any, folder: Path, net: Network, tmp_path: Path
) -> None:
    marker = tmp_path / "killed"
    words = {"verb": "made_job:dying", "marker": str(marker), "at": "0500.png"}
    done = fovea.bulk(net, folder, tmp_path / "out", engine="ray", workers=2, **words)
    assert int(marker.read_text()) > 0
    assert (done.pictures, len(done.skipped)) == (999, 1)
    assert len(contents(done)) == 1000
    plain = fovea.bulk(net, folder, tmp_path / "plain", verb="predict")
    assert contents(done) == contents(plain)


def test_what_a_worker_refuses_is_told_in_its_words(ray: Any, folder: Path, net: Network, tmp_path: Path) -> None:
    with pytest.raises(BadChoice, match="device 'cuda'"):
        fovea.bulk(net, folder, tmp_path, verb="predict", engine="ray", workers=2, device="cuda")


def test_index_and_measures(ray: Any, folder: Path, net: Network, tmp_path: Path, made: Any) -> None:
    files = sorted(folder.iterdir())[:130]
    for engine, name in ((Cluster(workers=2), "there"), (None, "here")):
        fovea.index(net, files, tmp_path / f"{name}.fovea", **({"engine": engine} if engine else {}))
    near = [fovea.open_index(tmp_path / f"{name}.fovea", net).search(files[0]) for name in ("there", "here")]
    assert [each.name for each in near[0][0].neighbors] == [each.name for each in near[1][0].neighbors]
    data = made("cub")
    for name in ("classify", "wsol"):
        here, there = (
            fovea.measure(name, made_job.network(), data, **given) for given in ({}, {"engine": Cluster(workers=2)})
        )
        assert list(map(dict, there.rows)) == list(map(dict, here.rows))
    with pytest.raises(BadChoice, match="not spread over workers"):
        fovea.measure("faithfulness", net, data, engine=Cluster())


def test_no_cluster_at_an_address(folder: Path, tmp_path: Path) -> None:
    line = f"predict {folder} --net smallnet --untrained --engine ray --address 127.0.0.1:1 --out {tmp_path}"
    done = subprocess.run([sys.executable, "-m", "fovea", *line.split()], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--address 127.0.0.1:1: no Ray cluster answers there" in done.stderr


def start_head(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """A cluster of its own, with its address."""
    port = free_port()
    words = f"start --head --block --port {port} --num-cpus 3 --include-dashboard false --disable-usage-stats"
    words += f" --object-store-memory 100000000 --temp-dir {folder} --min-worker-port 0 --max-worker-port 0"
    ray = Path(sys.executable).with_name("ray")
    token = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64}
    head = subprocess.Popen([ray, *words.split()], start_new_session=True, stdout=subprocess.PIPE, text=True, env=token)
    assert head.stdout is not None
    for line in head.stdout:
        if "runtime started" in line or "--block" in line:
            break
    return head, f"127.0.0.1:{port}"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def kill(head: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(head.pid, signal.SIGKILL)
    head.wait()


def test_the_head_killed_and_started_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a" * 64)
    out, short = tmp_path / "out", Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # Ray's sockets have short names
    head, address = start_head(short)
    try:
        fovea.load("smallnet", classes=3).save(file := tmp_path / "net.safetensors")
        line = f"-m fovea explain {folder} --net {file} --method gradcam --engine ray --out {out}"
        work = subprocess.Popen(
            [sys.executable, *line.split(), "--address", address, "--workers", "2"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        until = time.monotonic() + 120
        while len(list(out.glob("*.parquet"))) < 2:
            assert work.poll() is None, work.communicate()
            assert time.monotonic() < until
            time.sleep(0.02)
        kill(head)
        _, said = work.communicate(timeout=200)
        assert work.returncode
        before = len(list(out.glob("*.parquet")))
        assert before < 15
        head, address = start_head(short)
        words = [sys.executable, *line.split(), "--address", address, "--workers", "2"]
        again = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        assert "explain: 999 done, " in again
        assert "of them before, 1 skipped" in again
        assert len(list(Folder(str(out)).rows())) == 1000
        assert "cluster is gone" in said, said
    finally:
        kill(head)
        shutil.rmtree(short, ignore_errors=True)
