"""What each command of `spangate` does: one file a command. `proxy/cli.py` declares them and loads these on use."""
