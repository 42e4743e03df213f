# shellcheck shell=bash disable=SC2154 # tests/gpu/all sets out and list
# What tests/gpu/all measures of Llama-3 8B; it sources this file. Recipe mxfp8 is emulated on a chip without MXFP8.
#   gemms    the GEMMs of a layer, FP8 against bf16, with each recipe       OUT/gemms-RECIPE.json
#   layers   steps of four layers on one GPU, FP8 against bf16, with each   OUT/layers-RECIPE.json
#   whole    steps of all layers on all GPUs, in bf16 and with each recipe that the chip has, 1 sequence of 8192 tokens and 8 of 1024 on each, with a
#            profile of all ranks                                           OUT/whole-NAME.jsonl, OUT/whole-NAME.profile.json, tables in OUT/output.txt
# whole needs 16 GB for a model and 96 GB for a run in the folder SCRATCH, by default the one of /dev/shm and TMPDIR that has more free space.
recipes="tensorwise rowwise rowwise_with_gw_hp current delayed blockwise mxfp8"
model=llama3-8b device=cuda long="1 8192" short="8 1024" seconds=0.5

# four_layers FILE: writes the model's configuration with four layers.
four_layers() { sed -E 's/("num_hidden_layers": )[0-9]+/\14/' "share/presets/$model.json" >"$1"; }

linears() {
  local recipe
  for recipe in $recipes; do
    step gemms 120 build/bin/fp8-bench --model $model --recipe "$recipe" --device $device --steps 0 --seconds $seconds -q -f -o "$out/gemms-$recipe.json"
  done
  [ -n "$list" ] || four_layers "$out/four-layers.json"
  for recipe in $recipes; do
    step layers 400 build/bin/fp8-bench --model "$out/four-layers.json" --recipe "$recipe" --device $device --seconds 0.001 --steps 8 -q -f \
      -o "$out/layers-$recipe.json"
  done
}

# roomiest FOLDER...: prints the folder with the most free space.
roomiest() {
  local folder
  for folder in "$@"; do [ ! -w "$folder" ] || echo "$(df -Pk "$folder" | awk 'NR == 2 { print $4 }') $folder"; done | sort -rn | sed -n '1s/^[0-9]* //p'
}

whole() { # RANKS NAME SEQUENCES LENGTH FLAGS...: trains 12 steps and keeps the records and the profile
  local ranks=$1 name=whole-$2 sequences=$3 length=$4
  shift 4
  step whole 600 mpirun --allow-run-as-root --bind-to none -n "$ranks" build/bin/fp8-step "$scratch/model.h5" --data "$scratch/data.h5" \
    --out "$scratch/run" --device $device --batch-size "$sequences" --seq-length "$length" --steps 12 --profile 8-10 --save-every 0 -q "$@"
  [ -z "$list" ] || return 0
  [ ! -e "$scratch/run/log.jsonl" ] || cp "$scratch/run/log.jsonl" "$out/$name.jsonl"
  [ ! -e "$scratch/run/profile-8-10.json" ] || cp "$scratch/run/profile-8-10.json" "$out/$name.profile.json"
  rm -rf "$scratch/run"
}

everything() { # RANKS
  wanted whole || return 0
  local scratch=SCRATCH recipe
  [ -n "$list" ] || scratch=$(mktemp -d "${SCRATCH:-$(roomiest /dev/shm "${TMPDIR:-/tmp}")}/fp8.XXXXXX")
  step whole 600 build/bin/fp8-init $model --dtype bf16 -q -o "$scratch/model.h5"
  step whole 60 build/bin/fp8-tokenize share/text/tinyshakespeare.txt -q -o "$scratch/data.h5"
  # shellcheck disable=SC2086 # two words
  {
    whole "$1" bf16 $long --precision bf16
    for recipe in ${recipes% mxfp8}; do whole "$1" "$recipe" $long --precision fp8 --recipe "$recipe"; done
    for recipe in tensorwise rowwise; do
      whole "$1" "$recipe-atomic" $long --precision fp8 --recipe "$recipe" --no-deterministic
    done
    whole "$1" bf16-short $short --precision bf16
    for recipe in tensorwise rowwise; do whole "$1" "$recipe-short" $short --precision fp8 --recipe "$recipe"; done
  }
  [ -n "$list" ] || rm -rf "$scratch"
}

measure() { # GPUS
  linears
  [ "$1" -lt 2 ] || everything "$1"
}

# The same commands with a tiny model on the CPU, on two ranks.
rehearse() {
  export OMPI_MCA_rmaps_base_oversubscribe=1 OMP_NUM_THREADS=1
  model=tiny device=cpu long="1 128" short="2 64" seconds=0.001
  linears
  everything 2
}
