"""Tools: what they are, how their arguments are read, and how one is run."""
