"""python -m dsel: the command line, with signals handled from its first line on."""

import os
import sys
from typing import NoReturn

from dsel._lib.termination import EXIT_CODE, Stopped, handle_signals, leave, raise_on_signals


def main() -> NoReturn:
    """Run the command line as the program of this process, and end the process."""
    handle_signals()
    if "--debug" in sys.argv:
        os.environ.setdefault("DSEL_LOG_LEVEL", "DEBUG")
    from dsel.cli import main as run

    code = EXIT_CODE
    try:
        raise_on_signals()
        run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Stopped:
        pass
    leave(code)


if __name__ == "__main__":
    main()
