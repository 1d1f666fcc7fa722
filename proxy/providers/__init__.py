"""One file a dialect. What a provider is, is said in `provider.py`; the contract tests are in tests/proxy/providers/."""
