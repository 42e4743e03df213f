about := Chat: templates, conversations of alpaca, sharegpt and messages, loss masks, truncation, packing
deps  := base json token
