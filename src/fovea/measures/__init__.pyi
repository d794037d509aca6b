from .figures import Figures as Figures
from .registry import measure as measure
from .runner import Run as Run
from .tally import EVERY as EVERY
from .tally import Chosen as Chosen
from .tally import Tally as Tally
from .tally import ends as ends
from .tally import mean as mean
