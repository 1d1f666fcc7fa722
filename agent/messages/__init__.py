"""What is said: blocks, messages, the order they keep, and one module for each dialect that they are written in."""
