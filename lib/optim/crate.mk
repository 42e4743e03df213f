about := AdamW, Muon, learning-rate schedules, gradient norm and clipping
deps  := base dtype device tensor gemm ops
hot   := %
