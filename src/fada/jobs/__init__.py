"""The same work on one core, many, or a cluster: transcribing and emitting that survive interruptions."""
