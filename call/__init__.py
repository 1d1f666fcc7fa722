"""The words everyone shares: a call, its events, its errors, its chain. Imports nothing of ours."""
