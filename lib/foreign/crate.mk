about := Configurations of other trainers, key by key: what each key is here, and the commands that train as the other trainer would
deps  := base json dtype token hf chat data settings
pkgs  := yaml tomlplusplus
