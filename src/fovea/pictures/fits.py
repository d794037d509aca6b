"""How a picture of other proportions than a network's input comes in; read before torch is imported."""

FITS = {
    "crop": "the middle, as most networks were trained; the rest is not looked at",
    "squash": "the whole picture, stretched to the input's shape",
    "whole": "the whole picture in its proportions, padded where the network takes one shape only",
}
FIT = "whole"  # where nobody says otherwise and the network takes such inputs, else squash: docs/decisions.md
