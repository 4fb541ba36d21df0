"""The array type of the house: states, updates, noise and messages are numpy arrays of doubles."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
