"""Run notebooks and keep what their cells show, light and the same on every machine: python refresh.py [NAME.ipynb …]

Pictures become JPEGs of at most 960 x 1,200 pixels; times, counts and whatever is the machine's own are left out."""

import sys
from base64 import b64decode, b64encode
from contextlib import chdir
from io import BytesIO
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image
from traitlets.config import Config

HERE = Path(__file__).parent
LARGEST = 960, 1200
KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def run(file: Path) -> nbformat.NotebookNode:
    """The notebook with all of its cells run, in its own folder; an error where one raises."""
    notebook = nbformat.read(file, as_version=4)
    settings = Config(
        NotebookClient={"timeout": 600, "kernel_name": "python3", "record_timing": False},
        KernelManager={"transport": "ipc"},  # cells and outputs pass through files of this user's own
    )
    with chdir(HERE):  # where the kernel's sockets are looked for, too
        NotebookClient(notebook, resources={"metadata": {"path": str(HERE)}}, config=settings).execute()
    return notebook


def lighter(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """What is worth keeping of a notebook that was run."""
    notebook.metadata = nbformat.from_dict({**KERNEL, "language_info": {"name": "python"}})
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", nbformat.NotebookNode()
        for output in cell.get("outputs", ()):
            output.get("metadata", {}).clear()
            data = output.get("data", {})
            picture = data.pop("image/png", None) or data.get("image/jpeg")
            if picture:
                data["image/jpeg"] = _jpeg(b64decode(picture))
                data["text/plain"] = "a picture"
            elif "text/html" in data:
                data["text/plain"] = "a page"
    return notebook


def _jpeg(picture: bytes) -> str:
    image = Image.open(BytesIO(picture)).convert("RGB")
    image.thumbnail(LARGEST, Image.Resampling.LANCZOS)
    image.save(kept := BytesIO(), "jpeg", quality=80, optimize=True)
    return b64encode(kept.getvalue()).decode()


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]) if sys.argv[1:] else sorted(HERE.glob("*.ipynb")):
        nbformat.write(lighter(run(path.resolve())), path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
