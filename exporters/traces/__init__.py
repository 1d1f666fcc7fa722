"""From a Seen to spans, log events and decisions: what a trace of a call is made of."""
