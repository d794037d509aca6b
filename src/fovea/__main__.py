"""python -m fovea, and torchrun -m fovea."""

from fovea.cli import main

if __name__ == "__main__":  # processes that decode pictures import this again
    main()
