// KempnerForge: TOML with a table for each part of a run. Keys that the file lacks have the defaults of its
// dataclasses. Source: kempnerforge/config/*.py, training/{scheduler,optimizer,loss}.py, distributed/parallel.py,
// data/dataset.py and scripts/train.py at commit 5666d0d.
#include "kempner.h"

#include <array>
#include <filesystem>

#include "data_files.h"
#include "trainers.h"

namespace fp8::foreign {
namespace {

constexpr std::string_view kVision = "vision models and video are not trained here";
constexpr std::string_view kOneDataSet = "mixtures of data sets and their phases are not built here";

// Keys whose answer depends on no other key.
constexpr std::array<KeyRow, 37> kRows = {{
    {"vlm.*", Class::no_counterpart, "", kVision},
    {"vision_encoder.*", Class::no_counterpart, "", kVision},
    {"adapter.*", Class::no_counterpart, "", kVision},
    {"video.*", Class::no_counterpart, "", kVision},
    {"data.hf_dataset_image_field", Class::no_counterpart, "", kVision},
    {"data.hf_dataset_prompt_field", Class::no_counterpart, "", kVision},
    {"data.hf_image_size", Class::no_counterpart, "", kVision},
    {"data.datasets*", Class::no_counterpart, "", kOneDataSet},
    {"data.phases*", Class::no_counterpart, "", kOneDataSet},
    {"data.anneal_*", Class::no_counterpart, "", kOneDataSet},
    {"data.mix_temperature", Class::does_nothing, "", "read only with data.datasets"},
    {"data.num_workers", Class::no_effect, "", "processes that read data"},
    {"data.pin_memory", Class::no_effect, "", "memory of batches"},
    {"data.prefetch_factor", Class::no_effect, "", "batches read in advance"},
    {"train.compile_model", Class::no_effect, "", "kernels are compiled in advance here"},
    {"train.ce_chunk_size", Class::no_effect, "", "memory of the loss"},
    {"train.shutdown_timeout_sec", Class::no_effect, "", "how a run stops"},
    {"train.nccl_health_check_interval", Class::no_effect, "", "checks of the network"},
    {"optimizer.fused", Class::no_effect, "", "kernels of AdamW"},
    {"optimizer.muon_*", Class::does_nothing, "", "read only by optimizer muon"},
    {"optimizer.schedule_free_*", Class::does_nothing, "", "read only by optimizer schedule_free"},
    {"distributed.nccl_timeout_sec", Class::no_effect, "", "see --timeout"},
    {"distributed.backend", Class::no_effect, "", "libraries of communication"},
    {"distributed.pp_schedule", Class::no_effect, "", "order of micro-batches in the stages"},
    {"checkpoint.dir", Class::no_effect, "", "the folder of the run is named in run.sh"},
    {"checkpoint.async_mode", Class::no_effect, "--async-save", "when checkpoints are written"},
    {"checkpoint.load_path", Class::no_counterpart, "",
     "checkpoints of PyTorch are not read: convert the model to the Hugging Face form and name it with --model"},
    {"checkpoint.dyn_ckpt_window*", Class::no_effect, "", "which checkpoints are kept"},
    {"checkpoint.export_dtype", Class::no_effect, "", "see fp8-export"},
    {"checkpoint.exclude_from_loading", Class::does_nothing, "", "read only with checkpoint.load_path"},
    {"checkpoint.ignore_freeze_mismatch", Class::does_nothing, "", "read only for vision models"},
    {"metrics.log_interval", Class::no_effect, "", "every step has a record here; --log-every changes that"},
    {"metrics.*", Class::no_effect, "", "where metrics go: see fp8-log"},
    {"profiling.trace_dir", Class::no_effect, "", "the trace is in the folder of the run"},
    {"eval.*", Class::does_nothing, "", "eval.enabled is false"},
    {"scheduler.*", Class::does_nothing, "", "scheduler.name reads other keys"},
    {"data.hf_*", Class::does_nothing, "", "read only with data.hf_dataset_name"},
}};

void read_precision(Mapping& m) {
  Import& import = m.import();
  const std::string type = m.text("train.mixed_precision", "bf16");
  const char* path = "train.mixed_precision";
  if (type == "fp16") {
    m.refuse(path, "fp16 is not computed here; the nearest is bf16");
    import.set("precision", "bf16");
    return;
  }
  if (type == "fp32") {
    m.set(path, "bf16", "precision", "fp32");
    import.set("master", "fp32");
    import.set("moments", "fp32");
    return;
  }
  if (type != "bf16" && type != "fp8") m.keys().refuse(path, "must be bf16, fp16, fp32 or fp8");
  std::string here = "--precision " + type;
  import.set("precision", type);
  if (type == "fp8") {
    here += " --recipe tensorwise --fp8-all-gather --fp8-lm-head";
    import.set("recipe", "tensorwise");
    import.set("fp8-all-gather", true);
    import.set("fp8-lm-head", true);
    const std::int64_t experts = m.whole("model.num_experts", 0);
    if (experts > 0) {
      here += " --filter *.experts.*";
      import.set("filter", json::Array{"*.experts.*"});
    }
  }
  import.set("master", "bf16");
  import.set("moments", "bf16");
  m.answer(path, "bf16", Class::differs, here + " --master bf16 --moments bf16",
           "weights and moments are bf16 there too; here they are rounded stochastically");
}

void read_train(Mapping& m) {
  Import& import = m.import();
  read_precision(m);
  import.batches.micro = m.positive("train.batch_size", 8);
  import.batches.accumulation = m.positive("train.grad_accum_steps", 1);
  import.duration.steps = m.positive("train.max_steps", 100000);
  m.answer("train.batch_size", 8, Class::mapped, "--batch-size " + std::to_string(import.batches.micro));
  m.answer("train.grad_accum_steps", 1, Class::mapped,
           "--grad-accumulation " + std::to_string(import.batches.accumulation));
  m.answer("train.max_steps", 100000, Class::mapped, "--steps " + std::to_string(*import.duration.steps));
  const std::int64_t length = m.positive("train.seq_len", 2048);
  import.data.length = length;
  m.set("train.seq_len", 2048, "seq-length", length, Class::differs,
        m.has("data.dataset_path") ? "a piece of the data is seq_len tokens there, of which seq_len - 1 are targets"
                                   : "a piece of the data is seq_len + 1 tokens there, and pieces do not overlap");
  m.set("train.grad_clip_norm", 1.0, "clip", m.number("train.grad_clip_norm", 1));
  const std::int64_t seed = m.whole("train.seed", 42);
  constexpr const char* kSeed = "another generator: other first weights and another order of sequences";
  if (m.has("train.data_seed")) {
    m.set("train.data_seed", {}, "seed", m.whole("train.data_seed", seed), Class::differs, kSeed);
    m.note("train.seed", Class::differs, "fp8-init --seed " + std::to_string(seed), kSeed);
  } else {
    m.set("train.seed", 42, "seed", seed, Class::differs, kSeed);
  }
  m.set("train.activation_checkpointing", "none", "recompute", m.text("train.activation_checkpointing", "none"));
  const std::string loss = m.text("train.loss_fn", "cross_entropy");
  if (loss == "cross_entropy" || loss == "chunked_cross_entropy")
    m.note("train.loss_fn", Class::mapped, {}, "the cross-entropy");
  else
    m.refuse("train.loss_fn", "losses other than the cross-entropy are not built here");
  if (m.number("train.z_loss_weight", 0) > 0)
    m.refuse("train.z_loss_weight", "the logits of the vocabulary have no loss here; --z-loss is that of routers");
  else
    m.note("train.z_loss_weight", Class::mapped, {}, "off");
}

// Muon of matrices with an aspect of at most 10, AdamW of the others; steps are the rate times
// sqrt(max(1, rows / columns)).
void read_muon(Mapping& m) {
  m.import().set("optimizer", "muon");
  m.import().set("muon-scale", "original");
  m.answer(
      "optimizer.name", "adamw", Class::differs, "--optimizer muon --muon-scale original",
      "no Nesterov momentum there, and with shards each rank orthogonalizes its rows alone; embedding, LM head and "
      "routers have Muon there up to an aspect of 10, matrices of linears AdamW above it");
  m.need("optimizer.muon_momentum", 0.95, "the momentum of Muon is 0.95 here");
  m.need("optimizer.muon_ns_steps", 5, "Muon has 5 iterations here");
  const double lr = m.number("optimizer.lr", 3e-4);
  m.need("optimizer.muon_adam_lr", lr, "Muon and AdamW have one rate here");
}

void read_optimizer(Mapping& m) {
  const std::string name = m.text("optimizer.name", "adamw");
  if (name == "muon") {
    read_muon(m);
  } else if (name == "adamw") {
    m.answer("optimizer.name", "adamw", Class::mapped, {}, "AdamW");
  } else {
    m.refuse("optimizer.name", name + " is not built here; the nearest is adamw");
    m.refuse("optimizer.schedule_free_warmup_steps", "read by optimizer " + name + ", which is not built here");
  }
  m.set("optimizer.lr", 3e-4, "lr", m.number("optimizer.lr", 3e-4));
  m.set("optimizer.weight_decay", 0.1, "weight-decay", m.number("optimizer.weight_decay", 0.1), Class::mapped,
        "decays tensors of two or more dimensions, embeddings too");
  m.import().set("decay", "matrices");
  m.set("optimizer.betas", json::Array{0.9, 0.95}, "betas", m.pair("optimizer.betas", 0.9, 0.95));
  m.set("optimizer.eps", 1e-8, "eps", m.number("optimizer.eps", 1e-8));
}

// The decrease of schedule wsd: its length, its end and its shape.
void read_wsd(Mapping& m, std::int64_t warmup, std::int64_t steps) {
  Import& import = m.import();
  const std::int64_t stable = m.whole("scheduler.stable_steps", 0);
  const std::int64_t given = m.whole("scheduler.decay_steps", 0);
  const std::int64_t decay = given > 0 ? given : steps - warmup - stable;
  m.note("scheduler.stable_steps", Class::mapped, "--schedule-steps " + std::to_string(warmup + stable + decay));
  m.answer("scheduler.decay_steps", {}, Class::mapped, "--decay-steps " + std::to_string(decay));
  import.set("decay-steps", decay);
  if (warmup + stable + decay != steps) import.set("schedule-steps", warmup + stable + decay);
  m.set("scheduler.wsd_decay_type", "cosine", "decay-shape", m.text("scheduler.wsd_decay_type", "cosine"));
}

void read_scheduler(Mapping& m) {
  Import& import = m.import();
  const std::string name = m.text("scheduler.name", "cosine");
  const double lr = m.number("optimizer.lr", 3e-4), ratio = m.number("scheduler.min_lr_ratio", 0.1);
  if (name == "none") {
    m.set("scheduler.name", "cosine", "schedule", "constant");
    import.duration.warmup_steps = 0;
    return;
  }
  const std::int64_t warmup = m.whole("scheduler.warmup_steps", 2000), steps = m.import().duration.steps.value_or(0);
  import.duration.warmup_steps = warmup;
  import.duration.warmup_from = 0;
  m.answer("scheduler.warmup_steps", 2000, Class::mapped,
           "--warmup-steps " + std::to_string(warmup) + (warmup > 0 ? " --warmup-from 0" : ""),
           warmup > 0 ? "the rate of the first step is 0" : "");
  const bool straight = name == "rex" && m.number("scheduler.rex_alpha", 1) == 1 && ratio == 0;
  if (name == "rex" && !straight) {
    m.refuse("scheduler.name", "a power of the remaining share is not a schedule here; the nearest is linear");
    m.refuse("scheduler.rex_alpha", "read by schedule rex, which is not built here");
    import.set("schedule", "linear");
  } else if (name == "rex" || name == "linear" || name == "cosine" || name == "wsd" || name == "constant") {
    m.set("scheduler.name", "cosine", "schedule", straight ? "linear" : name);
  } else {
    m.keys().refuse("scheduler.name", "must be cosine, linear, wsd, constant, rex or none");
  }
  if (name == "constant") return;
  m.set("scheduler.min_lr_ratio", 0.1, "min-lr", lr * ratio);
  if (name == "wsd") return read_wsd(m, warmup, steps);
  const std::int64_t decay = m.whole("scheduler.decay_steps", 0);
  if (decay == 0) return m.note("scheduler.decay_steps", Class::mapped, {}, "all steps after the warm-up");
  m.set("scheduler.decay_steps", {}, "schedule-steps", warmup + decay);
}

void read_mesh(Mapping& m) {
  Import& import = m.import();
  const auto size = [&](const char* path) { return m.positive(path, 1); };
  const std::int64_t replicate = size("distributed.dp_replicate"), tp = size("distributed.tp"),
                     pp = size("distributed.pp"), cp = size("distributed.cp"), ep = size("distributed.ep"),
                     shard = m.whole("distributed.dp_shard", -1);
  m.set("distributed.dp_replicate", 1, "dp-replicate", replicate);
  if (tp > 1 && m.text("train.mixed_precision", "bf16") == "fp8") {
    m.refuse("distributed.tp", "KempnerForge stops with an error for FP8 with tensor parallelism");
    import.set("tp", tp);
  } else {
    m.set("distributed.tp", 1, "tp", tp);
  }
  m.set("distributed.pp", 1, "pp", pp);
  if (cp > 1)
    m.refuse("distributed.cp", "sequences are not divided over ranks here");
  else
    m.note("distributed.cp", Class::mapped, {}, "off");
  m.set("distributed.ep", 1, "ep", ep, Class::mapped,
        ep > 1 ? "multiplies the ranks there: --dp-shard contains it" : "");
  import.set("zero", "3");
  import.set("reduce-dtype", "f32");
  if (shard == -1) {
    m.answer("distributed.dp_shard", -1, Class::mapped, {}, "the remaining ranks");
    m.assume_ranks(product_of({replicate, ep, tp, pp}));
    return;
  }
  if (shard < 1 || shard > 1'000'000'000) m.keys().refuse("distributed.dp_shard", "must be -1 or at least 1");
  m.set("distributed.dp_shard", -1, "dp-shard", product_of({shard, ep}), Class::mapped,
        ep > 1 ? "dp_shard times ep" : "");
  import.ranks = product_of({replicate, shard, ep, tp, pp});
}

// A source of token ids: files of a folder.
void add_folder(Mapping& m, const std::string& path, const std::string& pattern, std::vector<DataSource>& sources) {
  Import& import = m.import();
  const std::vector<std::string> files = files_of_folder(import.options, path, pattern);
  if (files.empty()) {
    import.missing.push_back("data: " + path + "/" + pattern + ": no such files");
    return;
  }
  std::error_code ignored;
  for (const std::string& file : files) {
    if (file.ends_with(".npy")) {
      import.missing.push_back("data: " + file + ": fp8-tokenize does not read .npy; write the ids as .bin");
      return;
    }
    const bool wide = std::filesystem::file_size(file, ignored) % 4 == 0;
    sources.push_back({{file}, wide ? "u32" : "u16", {}, {}});
  }
}

// A source of text: a set of a hub, of which a local copy is used.
void add_hub(Mapping& m, const std::string& name, const std::string& split, std::vector<DataSource>& sources) {
  Import& import = m.import();
  const std::string file = local_file(import, name);
  if (file.empty()) {
    import.missing.push_back(to_fetch(name, split));
    return;
  }
  const std::string field = m.text("data.hf_dataset_text_field", "text");
  import.data.appends_eos = true;
  DataSource source{{file}, "jsonl", {}, {}};
  if (field != "text") source.columns.push_back("text=" + field);
  sources.push_back(std::move(source));
}

void read_data(Mapping& m) {
  Import& import = m.import();
  import.data.conversations = false;
  import.data.mask = "all";
  const std::string folder = m.text("data.dataset_path", ""), hub = m.text("data.hf_dataset_name", "");
  if (m.has("data.tokenizer_path")) import.data.tokenizer = m.text("data.tokenizer_path", "");
  m.note("data.tokenizer_path", Class::mapped, "fp8-tokenize --tokenizer");
  const bool mixed = m.keys().value("data.datasets") != nullptr;
  if (mixed) {
    import.missing.emplace_back("data: mixtures of data sets are not built here");
  } else if (!folder.empty()) {
    const std::string pattern = m.text("data.file_pattern", "*.npy");
    m.note("data.dataset_path", Class::mapped, "fp8-tokenize --from u32");
    m.answer("data.file_pattern", "*.npy", Class::mapped, "fp8-tokenize --from u32");
    add_folder(m, folder, pattern, import.data.train);
  } else if (!hub.empty()) {
    m.note("data.hf_dataset_name", Class::mapped, "fp8-tokenize --from jsonl");
    m.note("data.hf_dataset_config", Class::mapped, {}, "part of the name of the data");
    m.answer("data.hf_dataset_split", "train", Class::mapped, {}, "part of the name of the data");
    m.answer("data.hf_dataset_text_field", "text", Class::mapped, "fp8-tokenize --columns");
    m.note("data.hf_streaming", Class::differs, {}, "streamed data is read in another order there");
    add_hub(m, hub, m.text("data.hf_dataset_split", "train"), import.data.train);
  } else {
    import.missing.emplace_back("data: the file names none, and KempnerForge trains on random ids then");
  }
  m.note("data.dataset_path", Class::does_nothing, {}, "data.datasets decides");
  m.note("data.file_pattern", Class::does_nothing, {}, "read only with data.dataset_path");
  if (!m.flag("data.pack_sequences", false)) {
    m.note("data.pack_sequences", Class::mapped, "--documents joined");
    import.set("documents", "joined");
    return;
  }
  import.set("documents", "separate");
  import.one_loss_per_rank = true;
  m.note("data.pack_sequences", Class::mapped, "--documents separate");
}

void read_eval(Mapping& m) {
  if (!m.flag("eval.enabled", false)) return;
  Import& import = m.import();
  m.note("eval.enabled", Class::mapped, "--eval-data");
  m.set("eval.interval", 1000, "eval-every", m.whole("eval.interval", 1000));
  m.set("eval.steps", 50, "eval-batches", m.whole("eval.steps", 50));
  const std::string folder = m.text("eval.dataset_path", ""), hub = m.text("eval.hf_dataset_name", "");
  m.note("eval.dataset_path", Class::mapped, "fp8-tokenize --from u32");
  m.note("eval.hf_dataset_name", folder.empty() ? Class::mapped : Class::does_nothing, {}, "");
  for (const char* path : {"eval.file_pattern", "eval.hf_dataset_config", "eval.hf_dataset_split"})
    m.note(path, Class::mapped, {}, "part of the name of the data");
  if (!folder.empty())
    add_folder(m, folder, m.text("eval.file_pattern", "*.npy"), import.data.eval);
  else if (!hub.empty())
    add_hub(m, hub, m.text("eval.hf_dataset_split", "validation"), import.data.eval);
}

void read_saving(Mapping& m) {
  m.set("checkpoint.interval", 1000, "save-every", m.whole("checkpoint.interval", 1000), Class::no_effect);
  const std::int64_t keep = m.whole("checkpoint.keep_last_n", 3);
  if (keep > 0)
    m.set("checkpoint.keep_last_n", 3, "keep", keep, Class::no_effect);
  else
    m.note("checkpoint.keep_last_n", Class::no_effect, {}, "all checkpoints are kept");
  if (!m.flag("profiling.enable", false)) {
    m.note("profiling.enable", Class::no_effect, {}, "off");
    for (const char* path : {"profiling.start_step", "profiling.end_step"})
      m.note(path, Class::does_nothing, {}, "profiling.enable is false");
    return;
  }
  const std::int64_t first = m.whole("profiling.start_step", 5) + 1, last = m.whole("profiling.end_step", 8);
  const std::string steps = std::to_string(first) + "-" + std::to_string(last);
  const bool fits = last <= m.import().duration.steps.value_or(last);
  if (fits) m.import().set("profile", steps);
  for (const char* path : {"profiling.enable", "profiling.start_step", "profiling.end_step"})
    m.note(path, Class::no_effect, fits ? "--profile " + steps : "");
}

}  // namespace

int score_kempner(const Document& document) {
  return keys_in(document, {"model.dim", "model.n_layers", "model.n_heads", "train.seq_len", "train.max_steps",
                            "train.mixed_precision", "distributed.dp_shard", "scheduler.min_lr_ratio",
                            "checkpoint.interval", "metrics.log_interval", "dim", "n_layers", "n_heads"});
}

void read_kempner(Import& import) {
  Mapping m(import, import.documents.front());
  // A file of a model alone has its keys at the top.
  m.enter(m.has("dim") && !m.has("model") ? "" : "model.");
  read_kempner_model(m);
  m.enter("");
  read_train(m);
  read_optimizer(m);
  read_scheduler(m);
  read_mesh(m);
  read_data(m);
  read_eval(m);
  read_saving(m);
  m.keys().rest(kRows);
}

}  // namespace fp8::foreign
