about := One flag table per tool: parsing, help, completions; checked output, progress, signal flags
deps  := base json
pkgs  := cxxopts
