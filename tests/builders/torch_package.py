"""A torch that can be imported from a folder: a package of two modules, around the fake of `fake_torch`."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
TORCH = {
    "torch/__init__.py": "from builders.fake_torch import FakeTorch\n"
    "FAKE = FakeTorch()\n"
    "globals().update({k: v for k, v in vars(FAKE.module()).items() if not k.startswith('__')})\n"
    "__version__ = '2.13.0'\n"
    "import torch.optim.optimizer\n"
    "import torch.distributed.distributed_c10d\n",
    "torch/optim/__init__.py": "",
    "torch/optim/optimizer.py": "class Optimizer:\n"
    "    def __init__(self): self.steps = 0\n"
    "class SGD(Optimizer):\n"
    "    def step(self): self.steps += 1\n",
    "torch/distributed/__init__.py": "is_available = lambda: True\nis_initialized = lambda: False\n",
    "torch/distributed/distributed_c10d.py": "def init_process_group(): return 'group'\n",
}
TRAINING = """
from torch.optim.optimizer import SGD
main, other = SGD(), SGD()
for _ in range(5):
    main.step()
    other.step()
assert main.steps == other.steps == 5
"""


def write(folder: Path) -> None:
    for name, text in TORCH.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def path(folder: Path) -> str:
    """The PYTHONPATH with which a process finds this package, and this tracelink."""
    return os.pathsep.join([str(folder), str(ROOT / "tests"), str(ROOT)])
