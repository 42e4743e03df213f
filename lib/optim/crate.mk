about := AdamW, learning-rate schedules, gradient norm and clipping
deps  := base dtype device tensor
hot   := %
