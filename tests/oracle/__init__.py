"""Independent oracle of the DeepSeek-V4.1-Flash backbone in reference mode R64 (spec §0.3), plain torch on the CPU.

Written from the specification alone; it imports nothing of the compiler. Modules, one concern each:

* ``codecs``: §0.4 rounding and quantisers; ``ops``: §0.5 and §1.2 products and RMSNorm
* ``config``: §0.6 and §1.4 sizes and sharing maps; ``checkpoint``, ``token_map``, ``synthetic``, ``weights``: §10, §4.1
* ``rope`` §2.2, ``hyper`` §1.3, ``compress`` §2.3/§2.5, ``indexer`` §2.6 to §2.8, ``attention`` §2, ``moe`` §3,
  ``engram_hash`` and ``engram`` §4, ``state``, ``model`` §1.1; ``tiny`` §12.2
"""

from oracle.checkpoint import read_checkpoint, write_checkpoint
from oracle.config import Dims
from oracle.model import Oracle
from oracle.state import State
from oracle.synthetic import random_tensors
from oracle.tiny import tiny_config, tiny_token_map
from oracle.token_map import read_token_map

__all__ = [
    "Dims",
    "Oracle",
    "State",
    "random_tensors",
    "read_checkpoint",
    "read_token_map",
    "tiny_config",
    "tiny_token_map",
    "write_checkpoint",
]
