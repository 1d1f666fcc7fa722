"""Middlewares, one module each: settings, behaviour, words."""
