"""python -m dsel: the command line."""

from dsel.cli import main

main()
