"""What there is to try fovea on without any data: photographs of scikit-image, and sentences of film reviews."""

from importlib.resources import files
from pathlib import Path

PHOTOGRAPHS = {
    "cat": "chelsea.png",
    "coffee": "coffee.png",
    "rocket": "rocket.jpg",
    "motorcycle": "motorcycle_left.png",
}
SENTENCES = (  # three of AnchorNet's paper, and two to try
    "the film is really not so much bad as bland .",
    "even if the ring has a familiar ring , it's still unusually crafty and intelligent for hollywood horror .",
    "it's almost as if it's an elaborate dare more than a full-blooded film .",
    "a warm , funny and beautifully acted story that never talks down to its audience .",
    "two hours of noise , and not one scene that anybody will remember .",
)


def photograph(name: str) -> Path:
    return Path(str(files("skimage.data") / PHOTOGRAPHS[name]))
