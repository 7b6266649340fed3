"""Settings of every test run."""
from __future__ import annotations

import torch

# pytest-xdist gives each core a worker: torch's own threads would only get in each other's way.
torch.set_num_threads(1)
