#!/bin/sh
# fp8-tokenize on the command line: outputs, messages, errors.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

head -c 20000 "$SRC/share/text/tinyshakespeare.txt" >text.txt

says "fp8-tokenize prints one line" '^data.h5: 20000 tokens in 1 document, vocabulary 256$' fp8-tokenize text.txt -o data.h5
ok "--force --json succeeds" fp8-tokenize text.txt -o data.h5 --force --json
is "--json prints one record" "$(cat out)" '{"type":"tokens","path":"data.h5","tokens":20000,"documents":1,"vocab_size":256}'
is "standard error is empty" "$(cat err)" ""
ok "the same text is tokenized to another file" fp8-tokenize text.txt -o again.h5
ok "both files are equal" cmp data.h5 again.h5
is "the mode of the output follows the umask" "$(umask 027 && fp8-tokenize text.txt -o masked.h5 >/dev/null && stat -c %a masked.h5)" 640

status "an existing output gives status 2" 2 fp8-tokenize text.txt -o data.h5
is "an existing output is named in one line" "$(cat err)" "fp8-tokenize: data.h5: exists (use --force to replace it)"
cmp -s data.h5 again.h5
is "an existing output is unchanged" $? 0
mkdir folder
status "a folder as output gives status 2 with --force" 2 fp8-tokenize text.txt -o folder --force
status "an output in a missing folder gives status 2" 2 fp8-tokenize text.txt -o nowhere/data.h5
status "no output gives status 2" 2 fp8-tokenize text.txt
status "no input gives status 2" 2 fp8-tokenize -o x.h5
says "a missing input is named" '^fp8-tokenize: gone.txt: .*No such file' fp8-tokenize gone.txt -o x.h5
status "a missing input gives status 2" 2 fp8-tokenize gone.txt -o x.h5
says "an empty input is refused" '^fp8-tokenize: /dev/null: holds no tokens$' fp8-tokenize /dev/null -o x.h5
says "an unknown flag is named" '^fp8-tokenize: .*--nope' fp8-tokenize text.txt -o x.h5 --nope
says "an unknown --from is refused" '^fp8-tokenize: --from: ' fp8-tokenize text.txt -o x.h5 --from parquet
says "a vocabulary out of range is refused" '^fp8-tokenize: --vocab-size: ' fp8-tokenize text.txt -o x.h5 --vocab-size 0
says "an output that is also an input is refused" '^fp8-tokenize: text.txt: is also an input$' fp8-tokenize text.txt -o text.txt -f
says "a dry run prints the number of tokens" '^x.h5: would hold 20000 tokens' fp8-tokenize text.txt -o x.h5 --dry-run
is "the refused commands leave no file" "$(ls -A)" "$(printf 'again.h5\ndata.h5\nerr\nfolder\nmasked.h5\nout\ntext.txt')"

printf '{"text": "ab", "id": 1}\n{"text": "\\u00e9"}\n' >x.jsonl
says "JSON Lines are tokenized" '"tokens":4,"documents":2' fp8-tokenize x.jsonl -o x.h5 --json
says "--eos appends its id to each document" '"tokens":6,"documents":2,"vocab_size":257' \
  fp8-tokenize x.jsonl -o eos.h5 --eos 256 --vocab-size 257 --json
says "--eos beyond the vocabulary is refused" '^fp8-tokenize: end-of-document id 256 is not below' fp8-tokenize x.jsonl -o y.h5 --eos 256
printf '{"text": "ab"}\n{"prompt": "c"}\n' >bad.jsonl
says "a record without text is refused with its line" '^fp8-tokenize: bad.jsonl: line 2' fp8-tokenize bad.jsonl -o y.h5
printf '{"text": "ab"' >torn.jsonl
says "an incomplete record is refused with its line" '^fp8-tokenize: torn.jsonl: line 1' fp8-tokenize torn.jsonl -o y.h5

mark=$(printf '\357\273\277')
{ printf %s "$mark" && cat x.jsonl; } >mark.jsonl && { printf %s "$mark" && cat text.txt; } >mark.txt
ok "JSON Lines after a byte order mark are read" fp8-tokenize mark.jsonl -o mark.h5
ok "as without it" cmp mark.h5 x.h5
is "from standard input too" "$(fp8-tokenize - --from jsonl -n -o y.h5 <mark.jsonl)" "y.h5: would hold 4 tokens in 2 documents, vocabulary 256"
ok "and so is text" fp8-tokenize mark.txt -f -o mark.h5
ok "as without it" cmp mark.h5 data.h5
says "unless --from text reads any bytes" '^mark.h5: 20003 tokens' fp8-tokenize mark.txt --from text -f -o mark.h5
printf '{\n  "text": "one",\n  "id": 1\n}\n' >pretty.json && cp pretty.json pretty.jsonl
for input in pretty.json pretty.jsonl; do
  says "$input: a record over several lines is refused with what to do" \
    "^fp8-tokenize: $input: line 1 column 2: .*; a record is one line, or an element of an array\$" fp8-tokenize $input -o y.h5
done

printf '\001\000\054\001' >ids.u16
says "a file of u16 ids is read" '^ids.h5: 2 tokens in 1 document, vocabulary 301$' fp8-tokenize ids.u16 --vocab-size 301 -o ids.h5
says "ids without --vocab-size are refused" '^fp8-tokenize: ids.u16: ids need a vocabulary size \(use --vocab-size\)$' fp8-tokenize ids.u16 -o y.h5
says "an id beyond the vocabulary is named with its index" '^fp8-tokenize: ids.u16: token 1 is 300, not below' \
  fp8-tokenize ids.u16 --vocab-size 300 -o y.h5
says "a file with half an id is refused" 'not a multiple of 2 bytes$' fp8-tokenize text.txt bad.jsonl torn.jsonl --from u16 --vocab-size 65536 -o y.h5
says "a text with --from llmc is refused" '^fp8-tokenize: text.txt: not an llm.c file' \
  fp8-tokenize text.txt --from llmc --vocab-size 50257 -o y.h5
cp ids.u16 ids.bin
says "a file name in .bin without --from is refused" '^fp8-tokenize: ids.bin: .*state its format \(use --from u16, u32 or text\)$' \
  fp8-tokenize ids.bin -o y.h5
{
  # 20240520, version 1, 2 tokens, 253 further numbers
  printf '\210\330\064\001\001\000\000\000\002\000\000\000'
  head -c 1012 /dev/zero
  cat ids.u16
} >gpt2.bin
says "an llm.c file is recognized" '^gpt2.h5: 2 tokens' fp8-tokenize gpt2.bin --vocab-size 50257 -o gpt2.h5
cmp -s gpt2.h5 ids.h5
is "the vocabulary size is stored in the file" $? 1

is "standard input is tokenized" "$(fp8-tokenize - -o pipe.h5 --json <text.txt)" \
  '{"type":"tokens","path":"pipe.h5","tokens":20000,"documents":1,"vocab_size":256}'
ok "standard input gives an equal file" cmp data.h5 pipe.h5
gzip -c text.txt | fp8-tokenize - -o packed.h5 >out 2>err
is "compressed standard input is refused" "$? $(cat err)" \
  "2 fp8-tokenize: standard input: compressed by gzip; give the output of gzip -dc (use --from text to read any bytes)"
is "JSON Lines from standard input are tokenized" "$(fp8-tokenize - --from jsonl -o pipe2.h5 <x.jsonl)" \
  'pipe2.h5: 4 tokens in 2 documents, vocabulary 256'
fp8-tokenize text.txt -o full.h5 >/dev/full 2>err
is "a full standard output gives status 2" $? 2
says "terminal codes in names are escaped" 'x1b|1B' fp8-tokenize "$(printf 'a\033[31m')" -o y.h5

# A full file system: no temporary file is left. 'ulimit -f' counts blocks of 512 bytes.
head -c 3000000 /dev/zero >big
sh -c 'trap "" XFSZ; ulimit -f 1000; exec fp8-tokenize big --from text -o toobig.h5' >out 2>err
is "a write error gives status 2" $? 2
is "a write error names the output" "$(cut -d: -f1-2 <err)" "fp8-tokenize: toobig.h5"
is "a write error leaves no file" "$(find . -name '*toobig*')" ""

says "the help begins with an example" '^Example: fp8-tokenize ' fp8-tokenize --help
says "--version prints the version" '^fp8-tokenize [0-9]' fp8-tokenize --version
ok "bash accepts the completion script" bash -n -c "$(fp8-tokenize --completion bash)"
mkfifo text.pipe
: >err
fp8-tokenize text.pipe -o piped.h5 >out 2>err &
job=$!
tries=0
until [ -s err ] || [ $((tries = tries + 1)) = 200 ]; do sleep 0.05; done
is "a pipe without data is named in a message" "$(cat err)" "fp8-tokenize: text.pipe: is a pipe to which nothing has been written yet; waiting"
printf 'some text' >text.pipe
wait $job
is "the pipe is read when data arrives" "$? $(cat out)" "0 piped.h5: 9 tokens in 1 document, vocabulary 256"
done_testing
