about := Detects ranks missing from a collective and work without progress; messages between ranks go through an interface
deps  := base
