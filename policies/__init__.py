"""One file, one rule: its settings, its check, its behaviour, its words. Knows call/ and nothing else of ours."""
