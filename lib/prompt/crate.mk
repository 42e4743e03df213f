about := Prompts for generation: text, conversations and ids to tokens; text of tokens as they arrive, stop texts
deps  := base json ckpt token chat
