"""python -m fovea, torchrun -m fovea, and the program `fovea`."""

from fovea.cli import program

if __name__ == "__main__":  # processes that decode pictures import this again
    program()
