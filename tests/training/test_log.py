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
