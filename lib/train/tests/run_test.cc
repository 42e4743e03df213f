// Whole runs on one rank: records, stopping, resuming, and checkpoints that cannot be trained or resumed.
#include <cmath>
#include <cstring>
#include <fstream>

#include "forge.h"
#include "fp8/ckpt/checkpoint.h"
#include "fp8/ckpt/run_folder.h"
#include "fp8/ckpt/writer.h"
#include "fp8/train/evaluate.h"
#include "run_fixture.h"

namespace fp8::train {
namespace {

using test::forge;
using test::Forged;

TEST_F(Run, WritesRecordsAndNotes) {
  config_.save_every = 2;
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(story(), "run, step 1, step 2, checkpoint 2, step 3, step 4, checkpoint 4, end 4, ");
  EXPECT_EQ(records_.back().as_object().get_string("reason", "end"), "finished");
  EXPECT_NE(notes_.find("linears:\n"), std::string::npos);
  EXPECT_NE(notes_.find("total, each rank"), std::string::npos);
  std::string log;
  for (const json::Value& r : records_) log += json::dump(r) + "\n";
  EXPECT_EQ(read_file(at("run/log.jsonl")), log);
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(story(), "");
  EXPECT_NE(notes_.find("already at step 4 of 4, nothing to do"), std::string::npos);
  config_.until_step = 2;
  EXPECT_EQ(go(), Exit::done);
  EXPECT_NE(notes_.find("already at step 4, beyond --until-step 2, nothing to do"), std::string::npos) << notes_;
}

TEST_F(Run, StepsThatAreComputedTwiceChangeNothing) {
  config_.precision.precision = settings::Precision::fp8;
  config_.grad_accumulation = 2;
  EXPECT_EQ(go(), Exit::done);
  const auto plain = records_;
  config_.paranoid = 2;
  config_.out = at("again");
  EXPECT_EQ(go(), Exit::done);
  ASSERT_EQ(records_.size(), plain.size());
  for (std::size_t i = 1; i <= 4; ++i) {
    const json::Object &one = plain[i].as_object(), &two = records_[i].as_object();
    for (const char* field : {"loss", "grad_norm", "fp8_gemms", "bf16_gemms", "saturated_share", "underflow_share"})
      EXPECT_EQ(two.at(field), one.at(field)) << field;
    EXPECT_EQ(two.find("replayed") != nullptr, i % 2 == 0);
  }
  for (const char* name : {"/step-00000004/rank-00000-of-00001.h5", "/step-00000004/manifest.json"})
    EXPECT_TRUE(read_file(at("run") + name) == read_file(at("again") + name)) << name;
}

TEST_F(Run, StopsOnRequestAndResumes) {
  EXPECT_EQ(go(2), Exit::again);
  EXPECT_EQ(story(), "run, step 1, step 2, checkpoint 2, end 2, ");
  EXPECT_EQ(records_.back().as_object().get_string("reason", "end"), "stopped on request");
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(story(), "run, step 3, step 4, checkpoint 4, end 4, ");
  EXPECT_EQ(records_.front().as_object().get_int("first_step", "run"), 3);
}

// A change takes effect once, keeps the moments, and moves the position in the data as documented.
TEST_F(Run, SettingsThatAreNamedChange) {
  EXPECT_EQ(go(2), Exit::again);
  std::filesystem::copy(at("run"), at("stopped"), std::filesystem::copy_options::recursive);
  config_.schedule.lr = 1e-2, config_.batch_size = 3, config_.steps = 6;
  EXPECT_HOLDS(refusal(), "or --change batch,lr to go on with the new ones");
  config_.change = {"lr", "batch"};
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(json::dump(records_.front().as_object().at("changed")),
            R"([{"name":"batch","old":2,"new":3},{"name":"lr","old":0.001,"new":0.01}])");
  EXPECT_NE(notes_.find("from step 3 on: batch 3 (was 2), lr 0.01 (was 0.001)\n"), std::string::npos) << notes_;
  EXPECT_EQ(records_.back().as_object().get_int("tokens", "end"), 2 * 2 * 8 + 4 * 3 * 8);
  const ckpt::Position counters = ckpt::position_of(ckpt::Checkpoint::open(at("run/step-00000006")));
  EXPECT_EQ(counters.base, (ckpt::PositionBase{2, 32, 4}));
  // Stopped on the way, and resumed by the same command or without --change: the same bits, and no change.
  for (const std::vector<std::string>& change : {config_.change, std::vector<std::string>{}}) {
    config_.out = at(change.empty() ? "plain" : "again");
    std::filesystem::copy(at("stopped"), config_.out, std::filesystem::copy_options::recursive);
    config_.change = {"lr", "batch"};
    EXPECT_EQ(go(2), Exit::again);
    config_.change = change;
    EXPECT_EQ(go(), Exit::done);
    EXPECT_FALSE(records_.front().as_object().contains("changed"));
    for (const char* name : {"/step-00000006/rank-00000-of-00001.h5", "/step-00000006/manifest.json"})
      EXPECT_TRUE(read_file(at("run") + name) == read_file(config_.out + name)) << name;
  }
}

// Sample 0 of other data, and another precision, which needs no name.
TEST_F(Run, OtherDataBeginsAtItsFirstSample) {
  EXPECT_EQ(go(2), Exit::again);
  write_tokens(at("other.h5"), 700, 64);
  config_.data = at("other.h5"), config_.change = {"data"}, config_.sampler = data::SamplerKind::shuffle;
  config_.precision.precision = settings::Precision::fp8;
  config_.precision.chosen = true;
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(ckpt::position_of(ckpt::Checkpoint::open(at("run/step-00000004"))).base, (ckpt::PositionBase{2, 32, 0}));
  EXPECT_NE(notes_.find("from step 3 on: data, precision fp8 (was bf16), recipe tensorwise (was not set)\n"),
            std::string::npos)
      << notes_;
  config_.out = at("fresh"), config_.steps = 1;
  EXPECT_EQ(go(), Exit::done);
  EXPECT_NE(notes_.find("--change: " + at("fresh") + " has no checkpoint, so nothing changes\n"), std::string::npos);
}

// Epochs count the samples from the change on.
TEST_F(Run, EpochsFollowAChangedBatch) {
  config_.steps = 0, config_.epochs = 1, config_.batch_size = 31;  // 124 samples of 8 tokens: 4 steps
  EXPECT_EQ(go(2), Exit::again);
  config_.batch_size = 62, config_.change = {"batch"};
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(story(), "run, step 3, checkpoint 3, end 3, ");
}

TEST_F(Run, ARequestAtTheLastStepIsNoInterruption) { EXPECT_EQ(go(4), Exit::done); }

TEST_F(Run, AFailedStandardOutputEndsItWithACheckpoint) {
  state::Hooks hooks;
  hooks.record = [](const json::Value&) { throw Error("standard output: no room"); };
  hooks.progress = hooks.note = [](const std::string&) {};
  const auto one = comm::solo();
  EXPECT_EQ(error_of([&] { (void)run(config_, *one, hooks); }), "standard output: no room");
  ASSERT_EQ(ckpt::list_steps(at("run")).size(), 1u);
  const std::string log = read_file(at("run/log.jsonl"));
  EXPECT_NE(log.find("\"type\":\"checkpoint\""), std::string::npos);
  EXPECT_NE(log.find("\"reason\":\"output lost\""), std::string::npos);
}

TEST_F(Run, ADryRunWritesNothing) {
  config_.dry_run = true;
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(story(), "");
  EXPECT_NE(notes_.find("total, each rank"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(at("run")));
}

// A checkpoint of `kind` with the weights of small_model().
void write_model(const std::string& path, ckpt::FileKind kind, DType type) {
  const hf::ModelConfig model = small_model();
  ckpt::ModelWriter writer(path, kind, false);
  writer.document("config", hf::to_json(model));
  for (const model::Parameter& p : model::parameter_table(model)) {
    ckpt::TensorMeta meta;
    meta.name = "weights/" + p.name;
    meta.dtype = type;
    meta.shape = p.shape;
    writer.tensor(meta, std::vector<std::byte>(static_cast<std::size_t>(p.size()) * dtype::size_of(type)));
  }
  writer.commit();
}

TEST_F(Run, ProfilesTheStepsAskedFor) {
  config_.profile_first = 2, config_.profile_last = 3;
  config_.precision.precision = settings::Precision::fp8;
  EXPECT_EQ(go(), Exit::done);
  for (const char* kind : {"matmul forward", "matmul wgrad", "attention", "cross-entropy", "element-wise", "casts",
                           "optimizer", "input and output", "the rest", "limits: memory"})
    EXPECT_NE(notes_.find(std::string("\n  ") + kind), std::string::npos) << kind << " in\n" << notes_;
  const json::Value trace = json::parse_file(at("run/profile-2-3.json"));
  double whole = 0, parts = 0;
  int steps = 0, updates = 0;
  for (const json::Value& v : trace.as_object().at("traceEvents").as_array()) {
    const json::Object& event = v.as_object();
    const std::string name = event.get_string("name", "event");
    (name == "step" ? whole : parts) += event.at("dur").as_double();
    steps += name == "step" ? 1 : 0;
    updates += name == "AdamW" ? 1 : 0;
    if (name == "fp8 matmul") {
      const json::Object& a = event.at("args").as_object();
      EXPECT_EQ(2.0 * a.at("m").as_double() * a.at("n").as_double() * a.at("k").as_double(), a.at("flops").as_double());
    }
    EXPECT_GE(event.at("ts").as_double(), 0.0);
  }
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(updates, 2 * static_cast<int>(model::parameter_table(small_model()).size()));
  EXPECT_GT(parts, 0.0);
  EXPECT_LE(parts, whole * 1.0001);
}

TEST_F(Run, AProfileChangesNoNumber) {
  EXPECT_EQ(go(), Exit::done);
  const std::string plain = losses();
  config_.out = at("profiled"), config_.profile_first = 1, config_.profile_last = 4;
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(losses(), plain);
  config_.out = at("other"), config_.profile_last = 5;
  EXPECT_EQ(refusal(), "--profile: the run has only 4 steps");
}

TEST_F(Run, ABatchWithoutTargetsUpdatesNothing) {
  data::TokenWriter writer(at("masked.h5"), 64, std::nullopt, true, false);
  writer.append(std::vector<std::uint32_t>(1000, 3), std::vector<std::uint8_t>(1000, 0));
  (void)writer.finish();
  config_.data = at("masked.h5"), config_.steps = 12;  // more than may be skipped
  config_.paranoid = 2, config_.precision.precision = settings::Precision::fp8;
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(losses(), "null null null null null null null null null null null null ");
  for (std::size_t i = 1; i <= 12; ++i) {
    EXPECT_FALSE(records_[i].as_object().at("skipped").as_bool());
    EXPECT_TRUE(records_[i].as_object().at("masked").as_bool());
    for (const char* rate : {"tokens_per_s", "model_tflops"})
      EXPECT_EQ(json::dump(records_[i].as_object().at(rate)), "null");
  }
  EXPECT_NE(notes_.find("step 12: all targets of the batch are masked; nothing is updated\n"), std::string::npos);
  const std::string log = read_file(at("run/log.jsonl"));
  EXPECT_NE(log.find(R"({"type":"warning","step":12,"message":"no step since step 0 changed the weights: )"),
            std::string::npos)
      << log;
  const ckpt::Checkpoint before = ckpt::Checkpoint::open(at("m.h5")),
                         after = ckpt::Checkpoint::open(at("run/step-00000012"));
  EXPECT_EQ(ckpt::position_of(after).updates, 0);
  for (const ckpt::TensorMeta& meta : before.tensors("weights/")) {
    std::vector<std::byte> one(meta.bytes()), other(meta.bytes());
    before.read(meta.name, one), after.read(meta.name, other);
    EXPECT_TRUE(one == other) << meta.name;
  }
}

// A file of documents of these lengths with a mask; `counts(i)`: whether the tokens of document i count.
void write_counted_documents(const std::string& path, const std::vector<std::size_t>& lengths,
                             bool (*counts)(std::size_t)) {
  data::TokenWriter writer(path, 64, std::nullopt, true, true);
  std::uint32_t next = 1;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::vector<std::uint32_t> ids(lengths[i]);
    for (std::uint32_t& id : ids) id = next = next * 37 % 61;
    writer.append(ids, std::vector<std::uint8_t>(ids.size(), counts(i) ? 1 : 0));
    writer.end_document();
  }
  (void)writer.finish();
}

// A packed sequence has a token of padding at least, and fp8-tokenize cuts documents that do not fit.
TEST_F(Run, TheLengthToPackCutsNoDocument) {
  config_.dry_run = true;
  for (const auto& [longest, length] : {std::pair<std::size_t, const char*>{7, "8"}, {8, "16"}, {9, "16"}}) {
    write_counted_documents(at("data.h5"), {longest, 3, 2, 5}, [](std::size_t) { return true; });
    EXPECT_EQ(go(), Exit::done);
    EXPECT_NE(notes_.find("; fp8-tokenize --pack " + std::string(length) + " puts several conversations"),
              std::string::npos)
        << notes_;
    std::filesystem::remove(at("data.h5"));
  }
}

TEST_F(Run, DocumentsAreSeparateIfTheDataHasAMask) {
  write_counted_documents(at("data.h5"), {20, 3, 9, 2, 5, 7}, [](std::size_t) { return true; });
  const auto setting = [&] {
    EXPECT_EQ(go(), Exit::done);
    const json::Object& run = records_.front().as_object();
    EXPECT_EQ(run.at("settings").as_object().at("documents"), run.at("documents"));
    return run.get_string("documents", "run");
  };
  EXPECT_EQ(setting(), "separate");
  EXPECT_NE(notes_.find("data.h5: 1 of 6 documents are longer than 8 tokens and are split\n"), std::string::npos);
  EXPECT_NE(notes_.find("data.h5: each document is a sequence of its own, so 30 % of the tokens are padding\n"),
            std::string::npos)
      << notes_;
  const std::string plain = losses();
  for (const auto recompute : {model::Recompute::selective, model::Recompute::full}) {
    config_.precision.execution.recompute = recompute,
    config_.out = at("again" + std::to_string(static_cast<int>(recompute)));
    EXPECT_EQ(setting(), "separate");
    EXPECT_EQ(losses(), plain);
  }
  config_.precision.execution.recompute = model::Recompute::none;
  config_.out = at("twice"), config_.paranoid = 1;
  EXPECT_EQ(setting(), "separate");
  EXPECT_EQ(losses(), plain);
  config_.documents = data::DocumentMode::joined, config_.out = at("joined");
  EXPECT_EQ(setting(), "joined");
  EXPECT_NE(losses(), plain);
  config_.out = at("run"), config_.steps = 6;
  EXPECT_NE(refusal().find("--documents (\"separate\", now \"joined\")"), std::string::npos);
}

// The batch of both documents has the loss and the gradient of the one with targets.
TEST_F(Run, ASequenceWithoutTargetsHasNoWeight) {
  config_.precision.precision = settings::Precision::fp32, config_.precision.execution.activation = DType::f32;
  config_.steps = 1, config_.sampler = data::SamplerKind::sequential;
  std::vector<double> found;
  for (const std::vector<std::size_t>& lengths : {std::vector<std::size_t>{6}, std::vector<std::size_t>{6, 9, 4}}) {
    write_counted_documents(at("data.h5"), lengths, [](std::size_t i) { return i == 0; });
    config_.batch_size = static_cast<std::int64_t>(lengths.size()),
    config_.out = at("run" + std::to_string(lengths.size()));
    EXPECT_EQ(go(), Exit::done);
    for (const char* field : {"loss", "grad_norm"}) found.push_back(records_[1].as_object().get_double(field, "step"));
  }
  EXPECT_NEAR(found[2], found[0], 1e-6);
  EXPECT_NEAR(found[3], found[1], 1e-5 * found[1]);
}

TEST_F(Run, EvaluationsUseTheMasksOfTheirData) {
  write_counted_documents(at("eval.h5"), {6, 30, 2, 9}, [](std::size_t i) { return i != 1; });
  config_.eval_data = at("eval.h5"), config_.eval_every = 4;
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(records_.front().as_object().get_string("documents", "run"), "joined");
  const auto eval = std::find_if(records_.begin(), records_.end(),
                                 [](const json::Value& r) { return r.as_object().get_string("type", "") == "eval"; });
  ASSERT_NE(eval, records_.end());
  EXPECT_EQ(eval->as_object().get_int("tokens", "eval"), 5 + 1 + 8);
  settings::EvalConfig scored;
  scored.model = at("run/step-00000004"), scored.data = at("eval.h5"), scored.seq_length = 8, scored.per_token = true;
  std::vector<json::Value> all;
  state::Hooks hooks;
  hooks.record = [&](const json::Value& r) { all.push_back(r); };
  hooks.note = hooks.progress = [](const std::string&) {};
  const auto one = comm::solo();
  evaluate(scored, *one, hooks);
  ASSERT_EQ(all.size(), 1U + 4U + 1U + 1U + 1U);  // 29 targets are four pieces
  EXPECT_EQ(all.back().as_object().get_int("tokens", "eval"), 5 + 1 + 8);
  EXPECT_EQ(all.back().as_object().get_string("documents", "eval"), "separate");
  EXPECT_NEAR(all.back().as_object().get_double("loss", "eval"), eval->as_object().get_double("loss", "eval"), 1e-5);
  EXPECT_EQ(all[1].as_object().at("losses").as_array().size(), 8U);
}

// The update of the first step makes weights of 1e30, with which later steps are not finite: only the first step is
// saved, and the same command again does not get further.
TEST_F(Run, SkippedStepsAreNotSaved) {
  config_.schedule.lr = 1e30, config_.steps = 8, config_.save_every = 1, config_.keep = 1;
  const std::string reason =
      "the loss or the gradient was not finite in 7 steps in a row; the last checkpoint is " + at("run/step-00000001");
  const auto saved = [&] { return ckpt::list_steps(at("run")); };
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(refusal(Exit::diverged), reason);
    ASSERT_EQ(saved().size(), 1U);
    EXPECT_EQ(saved().front().step, 1);
  }
  EXPECT_EQ(go(3), Exit::again);
  EXPECT_EQ(story(), "run, step 2, step 3, step 4, warning 4, end 4, ");
  EXPECT_NE(notes_.find("nothing of them is saved; the last checkpoint is " + at("run/step-00000001")),
            std::string::npos);
  ASSERT_EQ(saved().size(), 1U);
  config_.until_step = 2;
  EXPECT_EQ(
      refusal(Exit::diverged),
      "the loss or the gradient was not finite in the last step; the last checkpoint is " + at("run/step-00000001"));
}

TEST_F(Run, PrecisionsFollowFromTheModelAndTheFlagsOfThisStart) {
  const auto in_fp8 = [&] {
    int count = 0;
    for (const json::Value& l : records_.front().as_object().get_array("linears", "run"))
      count += l.as_object().get_string("precision", "linear") == "fp8" ? 1 : 0;
    return count;
  };
  const auto recorded = [&](std::int64_t step) {
    return ckpt::Checkpoint::open(at("run/" + ckpt::step_name(step)))
        .at("weights/model.layers.0.mlp.down_proj.weight")
        .precision;
  };
  config_.until_step = 1, config_.precision.selection.filters = {"*"};
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(recorded(1), "bf16");
  config_.until_step = 2, config_.precision.selection.filters = {"*down_proj"};
  config_.precision.precision = settings::Precision::fp8;
  config_.precision.chosen = true;
  EXPECT_EQ(go(), Exit::done);
  const int filtered = in_fp8();
  EXPECT_EQ(recorded(2), "bf16");
  config_.until_step = 3, config_.precision.selection.filters = {};
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(recorded(3), "fp8");
  EXPECT_EQ(in_fp8(), filtered + 3);
}

TEST_F(Run, QuantizedWeightsCannotBeTrained) {
  write_model(at("q.h5"), ckpt::FileKind::quantized, DType::e4m3);
  config_.model = at("q.h5");
  EXPECT_EQ(refusal(),
            at("q.h5") +
                ": holds quantized weights, which cannot be trained; train adapters beside them with --lora-rank, or "
                "dequantize it first: fp8-quantize " +
                at("q.h5") + " --dequantize -o model.h5");
  write_model(at("i.h5"), ckpt::FileKind::model, DType::i32);
  config_.model = at("i.h5");
  EXPECT_EQ(refusal(), at("i.h5") + ": model.embed_tokens.weight: stored as int32, which cannot be trained");
  EXPECT_FALSE(std::filesystem::exists(at("run")));
}

// A forged checkpoint has correct digests, so the content is checked too.
TEST_F(Run, AForgedStepIsNotResumed) {
  EXPECT_EQ(go(2), Exit::again);
  const std::string good = at("run/step-00000002"), forged = at("forged/step-00000002");
  config_.out = at("forged");
  const auto said = [&](const std::function<void(Forged&)>& change) {
    std::filesystem::remove_all(config_.out);
    std::filesystem::create_directories(config_.out);
    forge(good, forged, change);
    const std::string text = refusal();
    EXPECT_FALSE(std::filesystem::exists(at("forged/log.jsonl"))) << text;
    return text.starts_with(forged) ? text.substr(forged.size()) : notes_ + text;
  };
  const auto train = [&](const std::string& key, const json::Value& value) {
    return said([&](Forged& f) { f.train.as_object().set(key, value); });
  };
  const std::string damaged = forged + ": damaged, trying an older one: " + forged,
                    all = "\n" + at("forged") + ": every checkpoint in it is damaged; move them away to start again";
  const auto refused = [&](const std::string& why) { return damaged + why + all + "; the newest: " + forged + why; };
  EXPECT_EQ(train("step", -2), refused(": /train: step is -2, which is below 0"));
  EXPECT_EQ(train("updates", 3), refused(": /train: 3 updates in 2 steps"));
  EXPECT_EQ(train("tokens", 33), refused(": /train: 33 tokens in 2 steps of equal size"));
  EXPECT_EQ(train("tokens", 34), ": /train: 34 tokens in 2 steps, which have 16 each");
  EXPECT_EQ(train("tokens", std::int64_t{1} << 62),
            ": /train: 4611686018427387904 tokens in 2 steps, which have 16 each");
  EXPECT_EQ(train("settings", nullptr), ": /train: has no settings, so the run cannot be resumed");
  EXPECT_EQ(train("settings", json::object({})), ": /train: settings: \"model\" is missing");
  EXPECT_EQ(said([](Forged& f) { f.train.as_object().find("settings")->as_object().set("lr", -1.0); }),
            at("forged") +
                ": this run was started with another --lr (-1.0, now 0.001); use another --out, or the "
                "same settings to resume, or --change lr to go on with the new ones");
  const auto tensor = [&](const std::string& name, const std::function<void(ckpt::TensorMeta&)>& change) {
    return said([&](Forged& f) {
      f.tensor = [=](ckpt::TensorMeta& m) {
        if (m.name == name) change(m);
      };
    });
  };
  const std::string v = "optimizer/v/model.norm.weight";
  EXPECT_EQ(tensor(v, [](ckpt::TensorMeta& m) { m.name.clear(); }), ": /" + v + ": there is no such tensor");
  EXPECT_EQ(tensor(v, [](ckpt::TensorMeta& m) { m.dtype = DType::e4m3; }),
            ": /" + v + ": stored as float8_e4m3fn, not f32 or bf16");
  EXPECT_EQ(tensor(v, [](ckpt::TensorMeta& m) { m.shape = {64}; }),
            ": /" + v + ": its shape is not that of the weight");
  EXPECT_NE(said([](Forged& f) { f.config.as_object().set("num_hidden_layers", 2); }), "no error");
  EXPECT_EQ(said([](Forged& f) { f.config.as_object().set("rms_norm_eps", 0.5); }),
            ": /config: is not the configuration of " + config_.model + ", which the run began with");
  const auto last_value = [&](const std::string& name, float value) {
    return said([&](Forged& f) {
      f.values = [=](const std::string& written, std::vector<std::byte>& bytes) {
        if (written == name) std::memcpy(bytes.data() + bytes.size() - sizeof value, &value, sizeof value);
      };
    });
  };
  const std::string in = "/rank-00000-of-00001.h5: /", m = "optimizer/m/model.norm.weight",
                    not_finite = ": holds a value that is not finite";
  EXPECT_EQ(last_value(m, std::nanf("")), refused(in + m + not_finite));
  EXPECT_EQ(last_value(m, -INFINITY), refused(in + m + not_finite));
  EXPECT_EQ(last_value(v, INFINITY), refused(in + v + not_finite + " or below 0"));
  EXPECT_EQ(last_value(v, -1e-9f), refused(in + v + not_finite + " or below 0"));
}

TEST_F(Run, TooMuchMemoryIsExplainedBeforeAnythingIsWritten) {
  config_.batch_size = std::int64_t{1} << 44;
  EXPECT_EQ(refusal(), "--batch-size: 17592186044416 sequences of 8 tokens, 2147483647 tokens at most");
  config_.batch_size = 2147483647 / 512;
  config_.seq_length = 512;
  const std::string said = refusal();
  EXPECT_EQ(said.find("out of memory: "), 0u) << said;
  EXPECT_NE(said.find(" on each rank: activations "), std::string::npos) << said;
  EXPECT_NE(said.find("; use a smaller --batch-size"), std::string::npos) << said;
  config_.batch_size = 1;
  config_.grad_accumulation = std::int64_t{1} << 40;
  EXPECT_EQ(
      refusal(),
      "out of memory: the tokens of a step, 4 PiB; use a smaller --batch-size, --seq-length or --grad-accumulation");
  EXPECT_FALSE(std::filesystem::exists(at("run")));
}

TEST_F(Run, TargetsThatDoNotCountHaveNoLoss) {
  data::TokenWriter writer(at("none.h5"), 64, std::nullopt, true, false);
  const std::vector<std::uint32_t> ids(33, 5);
  writer.append(ids, std::vector<std::uint8_t>(ids.size()));
  (void)writer.finish();
  settings::EvalConfig eval;
  eval.model = at("m.h5"), eval.data = at("none.h5"), eval.seq_length = 8;
  EXPECT_EQ(error_of([&] { evaluate(eval, *comm::solo(), {}); }),
            at("none.h5") + ": no token of it counts as a target, so it has no loss");
  config_.eval_data = at("none.h5"), config_.eval_every = 2, config_.keep_best = true, config_.save_every = 2;
  config_.until_step = 2;
  EXPECT_EQ(go(), Exit::done);
  config_.until_step = 0;
  EXPECT_EQ(go(), Exit::done);
  const std::string log = read_file(at("run/log.jsonl"));
  EXPECT_NE(log.find(R"("type":"eval","step":4,"tokens":0,"loss":null,"perplexity":null)"), std::string::npos);
}

TEST_F(Run, TenStepsThatAreNotFiniteInARow) {
  std::ignore = go(1);  // a checkpoint of step 1
  config_.steps = 30;
  const ckpt::Checkpoint good = ckpt::Checkpoint::open(at("run/step-00000001"));
  config_.schedule.lr = 1e-3;
  config_.clip = 1;
  config_.out = at("other");
  // A model with one weight near the largest float.
  ckpt::ModelWriter writer(at("huge.h5"), ckpt::FileKind::model, false);
  writer.document("config", good.config());
  for (const ckpt::TensorMeta& meta : good.tensors("weights/")) {
    std::vector<std::byte> bytes(meta.bytes());
    good.read(meta.name, bytes);
    if (meta.name == "weights/model.norm.weight") bytes[2] = bytes[3] = std::byte{0x7F};
    writer.tensor(meta, bytes);
  }
  writer.commit();
  config_.model = at("huge.h5");
  EXPECT_EQ(refusal(Exit::diverged),
            "the loss or the gradient was not finite in 10 steps in a row; no checkpoint was saved");
  EXPECT_EQ(story(), "run, step 1, step 2, step 3, step 4, step 5, step 6, step 7, step 8, step 9, step 10, end 10, ");
  const json::Object& end = records_.back().as_object();
  EXPECT_EQ(end.get_string("reason", "end"), "diverged");
  EXPECT_EQ(end.get_int("status", "end"), 4);
  EXPECT_NE(end.get_string("message", "end").find("10 steps in a row"), std::string::npos);
  records_.pop_back();
  for (std::size_t i = 1; i < records_.size(); ++i) {
    EXPECT_TRUE(records_[i].as_object().at("skipped").as_bool());
    EXPECT_EQ(records_[i].as_object().get_int("step", "record"), static_cast<std::int64_t>(i));
  }
}

}  // namespace
}  // namespace fp8::train
