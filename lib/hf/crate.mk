about := Hugging Face folders: config.json in both spellings, rope frequencies, safetensors read as untrusted and written streaming
deps  := base json dtype token
