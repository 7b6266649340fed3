"""Op definitions, one op a file; importing this package registers all of them.

May import the core of `ir` (graph, types, scalar, opkit, reference) and nothing else of dinfc.
"""
import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
