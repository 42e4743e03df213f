about := Text, conversations and token ids into a token file
deps  := base json cli h5 token chat data
