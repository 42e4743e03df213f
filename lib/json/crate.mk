about := Strict JSON and JSON Lines: duplicate keys, deep nesting and trailing bytes refused; a streaming reader
deps  := base
pkgs  := nlohmann
hot   := dump flat lines parse records value
