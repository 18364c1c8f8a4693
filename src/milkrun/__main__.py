"""`python -m milkrun`: the command line."""

from milkrun.cli import main

main()
