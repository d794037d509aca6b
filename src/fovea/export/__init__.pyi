from .exporting import Exported as Exported
from .exporting import export as export
from .exporting import plain as plain
from .writing import FORMATS as FORMATS
from .writing import PRECISIONS as PRECISIONS
from .writing import session as session
