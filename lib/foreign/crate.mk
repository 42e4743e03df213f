about := Configurations of other trainers, key by key: what each key is here, and the commands that train as the other trainer would
deps  := base json cli dtype token hf chat data
pkgs  := yaml tomlplusplus
