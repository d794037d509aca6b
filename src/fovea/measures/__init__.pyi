from .figures import Figures as Figures
from .registry import measure as measure
from .runner import Run as Run
