"""python -m dsel: the command line, with signals handled from its first line on."""

import os
import sys

from dsel._lib.termination import EXIT_CODE, Stopped, handle_signals, raise_on_signals


def main() -> None:
    """Run the command line as the program of this process."""
    handle_signals()
    if "--debug" in sys.argv:
        os.environ.setdefault("DSEL_LOG_LEVEL", "DEBUG")
    from dsel.cli import main as run

    try:
        raise_on_signals()
        run()
    except Stopped:
        raise SystemExit(EXIT_CODE) from None
    finally:
        handle_signals()  # the rest of the process has nothing to save


if __name__ == "__main__":
    main()
