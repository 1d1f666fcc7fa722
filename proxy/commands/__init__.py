"""The commands of `spangate`: what each does in a file of its own, loaded on use, and what the command line says of them in begin.py,
set_up.py and look.py."""
