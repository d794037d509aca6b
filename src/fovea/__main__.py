"""python -m fovea, and torchrun -m fovea."""

from fovea.cli import main

main()
