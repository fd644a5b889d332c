"""``python -m ildm`` is ``ildm``."""

import sys

from ildm.cli import main

sys.exit(main())
