"""`python -m spangate.proxy` is `spangate`."""

from .cli import main

main()
