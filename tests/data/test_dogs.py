from checks import refused
from fovea.data import open_data
from made_data import Made


def test_breeds_and_boxes(made: Made) -> None:
    data = open_data(made("dogs"))
    assert data.labels == ("Chihuahua", "Japanese_spaniel")
    assert [(one.label, one.row["split"]) for one in data.samples] == [(0, "train"), (1, "train"), (0, "test")]
    assert data.samples[0].name == "Images/n02085620-Chihuahua/n02085620_5927.jpg"
    assert data.samples[0].boxes == ((0, 3, 30, 11),)  # 0 to 29 across, 3 to 10 down, the last pixel counted


def test_lists_in_their_own_folder(made: Made) -> None:
    root = made("dogs")
    (root / "lists").mkdir()
    for part in ("train", "test"):
        (root / f"{part}_list.mat").rename(root / f"lists/{part}_list.mat")
    assert len(open_data(root)) == 3


def test_one_class_in_the_test_part_still_has_all_names(made: Made) -> None:
    assert open_data(f"{made('dogs')}:split=test").labels == ("Chihuahua", "Japanese_spaniel")


def test_a_list_that_is_no_matlab_file(made: Made) -> None:
    root = made("dogs")
    (root / "test_list.mat").write_bytes(b"oops")
    refused(r"test_list\.mat cannot be read as a MATLAB file", open_data, root)
