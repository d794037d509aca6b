from .exporting import Exported as Exported
from .exporting import export as export
from .exporting import plain as plain
from .exporting import takes_of as takes_of
from .tracing import Takes as Takes
from .writing import FORMATS as FORMATS
from .writing import PRECISIONS as PRECISIONS
from .writing import session as session
