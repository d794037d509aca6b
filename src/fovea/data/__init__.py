"""Labelled data to train on and to measure with. `open_data("cub100:split=test,labels=50-99")` opens any of it."""

from fovea.data.folders import open_folder
from fovea.data.layouts import LAYOUTS, Layout, open_data
from fovea.data.packs import open_pack
from fovea.data.samples import Annotation, Below, Box, DataSet, Member, Pixels, Sample, Source, Unreadable
from fovea.data.sentences import Sentences, open_sentences, tokenise
from fovea.data.sounds import Sound, Sounds, open_sounds
from fovea.data.vectors import Encoded, Vectors, open_vectors
from fovea.data.wav import read_sound

__all__ = [
    "LAYOUTS",
    "Annotation",
    "Below",
    "Box",
    "DataSet",
    "Encoded",
    "Layout",
    "Member",
    "Pixels",
    "Sample",
    "Sentences",
    "Sound",
    "Sounds",
    "Source",
    "Unreadable",
    "Vectors",
    "open_data",
    "open_folder",
    "open_pack",
    "open_sentences",
    "open_sounds",
    "open_vectors",
    "read_sound",
    "tokenise",
]
