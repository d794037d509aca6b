from .figure import ROWS as ROWS
from .figure import prototype_sheet as prototype_sheet
