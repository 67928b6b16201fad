"""Stepladder, installed: the command with all that it needs, and the module that lets a training loop be measured.

`import stepladder` in a trainer means that module, python/trainer/stepladder.py of the sources. A trainer that the harness
starts gets the folder of that file alone, on PYTHONPATH, and so nothing else of this environment.
"""

from .share.stepladder.python.trainer.stepladder import *  # noqa: F403
