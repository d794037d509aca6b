"""Any number of pictures: rows and maps as Parquet, by this machine's cores or by a cluster."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
