from checks import refused
from fovea.data import open_data
from made_data import Made

BOXES = [((0, 0, 30, 20),), ((2, 3, 8, 9),)]  # 1 to 30 and 1 to 20, 3 to 8 and 4 to 9, counted from 1


def test_the_devkit(made: Made) -> None:
    data = open_data(made("cars"))
    assert data.labels == ("AM General Hummer SUV 2000", "Acura RL Sedan 2012")
    assert [one.name for one in data.samples] == [f"cars_{p}/0000{i}.jpg" for p in ("train", "test") for i in (1, 2)]
    assert [one.label for one in data.samples] == [1, 0, 1, 0]
    assert [one.boxes for one in data.samples] == BOXES * 2


def test_all_in_one(made: Made) -> None:
    data = open_data(made("old-cars"))
    assert [(one.name, one.label, one.row["split"]) for one in data.samples] == [
        ("car_ims/000001.jpg", 0, "train"),
        ("car_ims/000002.jpg", 1, "test"),
    ]
    assert [one.boxes for one in data.samples] == BOXES


def test_half_of_either_layout(made: Made) -> None:
    root = made("old-cars")
    (root / "cars_annos.mat").unlink()
    refused(r"cars_annos\.mat not in .* \(there: car_ims\)", open_data, root)
    root = made("cars", "devkit-cars")
    (root / "cars_test_annos_withlabels.mat").rename(root / "devkit/cars_test_annos_withlabels.mat")
    assert len(open_data(root)) == 4
    (root / "devkit/cars_test_annos_withlabels.mat").unlink()
    assert len(open_data(f"{root}:split=train")) == 2
    refused(r"cars_test_annos_withlabels\.mat not in", open_data, f"{root}:split=test")


def test_halves_for_retrieval(made: Made) -> None:
    assert {one.label for one in open_data(f"{made('cars')}:labels=0-0").samples} == {0}
