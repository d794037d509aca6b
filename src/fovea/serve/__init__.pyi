from .application import application as application
from .memory import keep_flat as keep_flat
from .models import Networks as Networks
from .models import loaded as loaded
from .options import Limits as Limits
from .options import ServeOptions as ServeOptions
from .options import demand_token as demand_token
from .running import serve as serve
