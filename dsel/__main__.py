from dsel.cli import main

main()
