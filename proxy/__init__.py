"""The gateway: from HTTP to a Call and back, and out to providers."""
