"""Counters in windows: what may still be spent, what is held, what was. The words and the protocol are in ledger.py; memory.py and
valkey.py keep it; waiting.py queues for it."""
