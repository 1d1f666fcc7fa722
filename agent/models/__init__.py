"""Models that an agent can ask: one module each, all of one shape (base.py)."""
