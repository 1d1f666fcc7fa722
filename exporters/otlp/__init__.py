"""OTLP: what is encoded, batched and sent to a collector, and where the environment and the file say so."""
