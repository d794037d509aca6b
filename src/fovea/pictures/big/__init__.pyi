from .facts import BigFacts as BigFacts
from .opening import big_of as big_of
from .opening import is_big as is_big
from .opening import open_big as open_big
from .picture import BigPicture as BigPicture
from .picture import Counts as Counts
from .slide import SUFFIXES as SUFFIXES
