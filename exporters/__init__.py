"""What happened, told to the outside. Knows call/ and nothing else of ours; nothing here may fail a call."""
