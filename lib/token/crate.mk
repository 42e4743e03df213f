about := Tokenizers of tokenizer.json: byte-level and byte-fallback BPE, encoding with a word cache, decoding
deps  := base json
pkgs  := pcre2 utf8proc
hot   := bpe bpe_merge decoder encoder expression lines normalizer pattern pre_tokenizer replace unicode
