// Source: transformers 4.40 to 5.8, training_args.py, and its callbacks.
#include "trainer_rows.h"

#include <array>

namespace fp8::foreign {
namespace {

constexpr Class kNone = Class::no_effect;
constexpr std::string_view kLog = "where metrics go: see fp8-log";
constexpr std::string_view kJob = "mpirun starts the ranks";

constexpr std::array kRows = std::to_array<KeyRow>({
    {"trust_remote_code", kNone, "", "no code of a model is run here"},
    {"low_cpu_mem_usage", kNone, "", "where the model is read"},
    {"torch_empty_cache_steps", kNone, "", "memory"},
    {"dataloader_*", kNone, "", "processes that read data"},
    {"remove_unused_columns", kNone, "", "how data is prepared and cached"},
    {"accelerator_config*", kNone, "", "when gradients are reduced"},
    {"ddp_*", kNone, "", "how gradients are reduced"},
    {"local_rank", kNone, "", kJob},
    {"use_ray", kNone, "", kJob},
    {"ray_*", kNone, "", kJob},
    {"resources_per_worker*", kNone, "", kJob},
    {"eval_*", kNone, "", "when and how the loss is evaluated"},
    {"evaluation_strategy", kNone, "", "when the loss is evaluated: see --eval-every"},
    {"metric_for_best_model", kNone, "", "see --keep-best"},
    {"greater_is_better", kNone, "", "see --keep-best"},
    {"output_dir", kNone, "", "the folder of the run is named in run.sh"},
    {"save_*", kNone, "", "when checkpoints are written"},
    {"hub_*", kNone, "", "what is done with the model after the run"},
    {"swanlab_*", kNone, "", kLog},
    {"use_swanlab", kNone, "", kLog},
    {"trackio_*", kNone, "", kLog},
});

}  // namespace

std::span<const KeyRow> trainer_rows() { return kRows; }

}  // namespace fp8::foreign
