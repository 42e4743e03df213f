#!/bin/sh
# examples/3-fine-tune as a user runs it: transformers gives the answers that fp8-generate gives.
. "${SRC:-.}/tests/cli/lib.sh"
unset STEPS
export PYTHON=python OMPI_MCA_hwloc_base_binding_policy=none
ok "the example succeeds" "$SRC/examples/3-fine-tune/run.sh" tune
sed -n '/^7  /,/^8  /p' out | grep -v '^\($\|[78$] \)' >ours
sed -n '/^8  /,/^Done/p' out | grep -v '^\($\|[8$] \|Done\)' >theirs
is "there are four answers" "$(wc -l <ours)" 4
is "transformers gives the same" "$(cat theirs)" "$(cat ours)"
is "they are those of the conversations" "$(sort ours)" "$(printf '%s\n' 'It trains a model.' 42. 'No, it is 3 times 3.' fp8-convert. | sort)"
done_testing
