"""What is counted and measured: the families, their series, and how `/metrics` shows them."""
