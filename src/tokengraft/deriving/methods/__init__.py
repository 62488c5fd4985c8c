"""Methods that derive rows: numbers in, rows out."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.floating]
Rows: TypeAlias = npt.NDArray[np.float32]
