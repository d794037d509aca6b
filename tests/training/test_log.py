from pathlib import Path

from fovea.training.log import Log, plot, read


def test_rows_after_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    log = Log(tmp_path, 0)
    for step in (1, 2, 3):
        log.add(step=step, loss=1 / step)
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"step": 4, "lo')  # killed while writing
    assert [row["step"] for row in read(tmp_path)] == [1, 2, 3]
    Log(tmp_path, 2).add(step=3, loss=0.5)
    assert read(tmp_path) == [{"step": 1, "loss": 1.0}, {"step": 2, "loss": 0.5}, {"step": 3, "loss": 0.5}]


def test_curves(tmp_path: Path) -> None:
    log = Log(tmp_path, 0)
    log.add(step=1, epoch=0.5, loss=2.0, accuracy=0.1, lr=0.1)
    log.add(step=2, epoch=1.0, loss=1.0, accuracy=0.4, lr=0.05)
    log.add(step=2, epoch=1.0, top1=0.3)
    path = plot(tmp_path, "a run")
    assert path.stat().st_size > 10_000


def test_lines_that_are_no_rows_are_left_out(tmp_path: Path) -> None:
    """What was written by nobody knows whom neither stops a run nor is drawn."""
    good = '{"step": 1, "epoch": 0.5, "loss": 2.0, "lr": 0.1}'
    bad = [
        "", "?", "[]", "null", "5", "{}", '{"step": "x"}', '{"step": -1}', '{"step": NaN}', '{"step": 1, "loss": NaN}',
        '{"step": 1, "loss": 1e999}', '{"step": 1, "loss": [1]}', '{"step": 1, "epoch": "x"}', "[" * 100_000,
        '{"step": ' + "9" * 5000 + "}", '{"step": 1, ' + ", ".join(f'"c{i}": 1' for i in range(20_000)) + "}",
        '{"step": 1, "more": {"a": 1}}', "\0" * 50, '{"step": "1"}', '{"step": 1, "loss": "2"}', '{"step": true}',
    ]  # fmt: skip
    content = b"\n".join([good.encode(), b"\xff\xfe", *(line.encode() for line in bad), good.encode(), b"x" * 10**6])
    (tmp_path / "log.jsonl").write_bytes(content)
    assert read(tmp_path) == [{"step": 1, "epoch": 0.5, "loss": 2.0, "lr": 0.1}] * 2
    plot(tmp_path, "a run")
    Log(tmp_path, 5)
    assert (tmp_path / "log.jsonl").read_text() == f"{good}\n" * 2


def test_rows_without_figures_are_not_drawn(tmp_path: Path) -> None:
    log = Log(tmp_path, 0)
    log.add(step=1)
    log.add(step=1, loss=1.0)
    log.add(step=1, top1=0.5)
    log.add(step=1, epoch=1.0, top1=None)
    assert plot(tmp_path, "a run").is_file()


def test_a_link_in_the_place_of_the_log_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    for name in ("log.jsonl", "curves.png"):
        (tmp_path / name).symlink_to(tmp_path / "victim")
    Log(tmp_path, 0).add(step=1, epoch=1.0, loss=1.0, lr=0.1)
    plot(tmp_path, "a run")
    assert (tmp_path / "victim").read_text() == "precious"
