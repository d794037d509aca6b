"""What the notebooks draw: birds, since no photograph of one comes along, and pictures in a row."""

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

Color = tuple[int, int, int]
RED, ORANGE, YELLOW, BLUE, BLACK = (200, 25, 25), (240, 130, 20), (235, 205, 40), (50, 80, 190), (25, 25, 28)


def bird(
    body: Color = RED,
    wing: Color | None = None,
    beak: Color = (235, 120, 30),
    crest: bool = False,
    mask: bool = False,
    side: int = 448,
    seed: int = 0,
) -> Image.Image:
    """A bird on a branch. Seeds after 0 move it, change its size and color a little, and turn some of them around."""
    random = np.random.default_rng(seed)
    shade = np.zeros(3) if seed == 0 else random.normal(0, 12, 3)
    large, right, down = (1, 0, 0) if seed == 0 else (random.uniform(0.6, 0.95), *random.uniform(0, 0.25, 2))
    scale = 2 * side / 100  # drawn at twice the size, on a canvas of 100 x 100
    image = Image.fromarray(_ground(2 * side, random))
    draw = ImageDraw.Draw(image)

    def at(*numbers: float) -> list[float]:
        return [scale * (number * large + 100 * (down if i % 2 else right)) for i, number in enumerate(numbers)]

    def near(color: Color, times: float = 1) -> Color:
        red, green, blue = (int(value) for value in (np.array(color) * times + shade).clip(0, 255))
        return red, green, blue

    draw.line(at(-100, 85, 200, 65), fill=(90, 65, 45), width=round(3.5 * scale * large))
    draw.polygon(at(30, 62, 6, 84, 10, 90, 36, 70), fill=near(body, 0.8))  # the tail
    draw.ellipse(at(26, 36, 70, 74), fill=near(body))
    draw.ellipse(at(52, 22, 76, 48), fill=near(body))
    if crest:
        draw.polygon(at(54, 32, 57, 12, 70, 25), fill=near(body))
    draw.polygon(at(30, 50, 54, 46, 50, 62, 22, 70), fill=near(wing or body, 0.95))
    if mask:
        draw.ellipse(at(66, 30, 76, 44), fill=(20, 15, 15))
    draw.polygon(at(72, 32, 84, 38, 72, 43), fill=near(beak))
    draw.ellipse(at(64.5, 29.5, 68, 33), fill=(10, 10, 10))
    draw.ellipse(at(65.2, 30, 66.3, 31.1), fill=(240, 240, 240))
    image = image.filter(ImageFilter.GaussianBlur(3 * side / 448)).resize((side, side))
    grain = random.normal(0, 6, (side, side, 3))
    image = Image.fromarray((np.asarray(image) + grain).clip(0, 255).astype(np.uint8))
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if seed % 2 else image


def row(*images: Image.Image, height: int = 240) -> Image.Image:
    """Pictures beside each other, all of one height."""
    shown = [image.convert("RGB").resize((round(image.width * height / image.height), height)) for image in images]
    whole = Image.new("RGB", (sum(image.width + 8 for image in shown) - 8, height), "white")
    left = 0
    for image in shown:
        whole.paste(image, (left, 0))
        left += image.width + 8
    return whole


def _ground(side: int, random: np.random.Generator) -> np.ndarray:
    """Leaves out of focus: H,W,3."""
    y, x = np.linspace(0, 1, side)[:, None], np.linspace(0, 1, side)[None]
    a, b = random.uniform(0, 6, 2)
    red, green = 110 + 40 * y + 20 * np.sin(7 * x + 3 * y + a), 140 + 30 * (1 - y) + 25 * np.sin(5 * x - 2 * y + b)
    return np.stack([red, green, 90 + 20 * y + 0 * x], -1).clip(0, 255).astype(np.uint8)
