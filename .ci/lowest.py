"""What fovea needs, each package at the lowest version that pyproject.toml permits; without those that are named."""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]
for wanted in (*project["dependencies"], *extras["video"], *extras["serve"]):
    name, version = re.fullmatch(r"([\w-]+)>=([\d.]+)", wanted).groups()
    if name not in sys.argv[1:]:
        print(f"{name}=={version}")
