"""A process of its own for a piece of work, which ends with it whatever happens."""

import os
import traceback
import warnings
from collections.abc import Callable


def forked(work: Callable[[], object]) -> int:
    """Do `work` in a new process; it exits with 0 when the work is done, and with 1 when it fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return process
