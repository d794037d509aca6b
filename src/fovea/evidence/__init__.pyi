from .calibration import calibration_error as calibration_error
from .calibration import reliability as reliability
