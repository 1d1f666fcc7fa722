"""spangate: an OpenTelemetry-first observability and governance proxy for model traffic.

The repository root is this package. Nothing belongs here but the version: importing it costs nothing.
"""

__version__ = "0.1.0"
