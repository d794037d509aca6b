"""How a picture of other proportions than a network's input comes in; read before torch is imported."""

FITS = {
    "crop": "the middle, as most networks were trained: what lies outside is not looked at",
    "squash": "the whole picture, squashed into the input",
    "whole": "the whole picture in its proportions, in an input of these where the network takes one, else padded",
}
FIT = "whole"  # where nobody says otherwise and the network takes such inputs, else squash: docs/decisions.md
