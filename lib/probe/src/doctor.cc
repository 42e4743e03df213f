// Runs all checks in order and computes the overall result.
#include "fp8/probe/doctor.h"

#include <array>
#include <functional>
#include <memory>

#include "exact.h"
#include "fp8/base/program.h"
#include "fp8/base/text.h"
#include "fp8/comm/device.h"
#include "fp8/device/runtime.h"
#include "fp8/gemm/gemm.h"
#include "fp8/h5/types.h"
#include "fp8/ops/attention.h"
#include "fp8/probe/chip.h"
#include "fp8/probe/machine.h"
#include "fp8/train/device_setup.h"
#include "nvml.h"

namespace fp8::probe {
namespace {

const char* const kGpu = "GPU";
const char* const kCuda = "CUDA";
const char* const kLibraries = "libraries";
const char* const kDriver = "install NVIDIA's driver, or use a machine with a GPU of compute capability 8.9 or newer";

std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

// "13.1" of 13010.
std::string cuda_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Runs the checks of one diagnosis.
class Doctor {
 public:
  explicit Doctor(const Environment& around) : around_(around) {}
  Diagnosis run() {
    found_.device = "CPU";
    gpu();
    if (around_.host) driver();
    if (around_.host) cuda();
    products();
    if (around_.host) host();
    processor();
    return std::move(found_);
  }

 private:
  void add(Check check) { found_.checks.push_back(std::move(check)); }
  bool passed(const std::string& name) const {
    for (const Check& c : found_.checks) {
      if (c.name == name) return c.verdict == Verdict::pass;
    }
    return false;
  }
  void gpu();
  void driver();
  void cuda();
  void products();
  void mpi();
  void host();
  void processor();
  void on_gpu(const std::string& group, const std::string& name, const std::string& hint,
              const std::function<std::string()>& body);
  // Checks a library that only a GPU needs; a missing one fails only if there is a GPU.
  void device_library(const std::string& name, const std::string& hint, const std::function<std::string()>& version);

  const Environment& around_;
  Diagnosis found_;
  std::unique_ptr<device::Device> device_;  // device, or null without a usable GPU
};

// Adds a check that runs only with a GPU.
void Doctor::on_gpu(const std::string& group, const std::string& name, const std::string& hint,
                    const std::function<std::string()>& body) {
  Check check{group, name, Verdict::none, "needs a GPU", {}};
  if (device_) {
    check = attempt(group, name, hint, body);
    check.common = name_of(check.verdict);
  }
  add(std::move(check));
}

void Doctor::device_library(const std::string& name, const std::string& hint,
                            const std::function<std::string()>& version) {
  Check c = attempt(kCuda, name, hint, version);
  if (c.verdict == Verdict::fail && !device_) c.verdict = Verdict::none;
  if (c.verdict == Verdict::none && device::runtime_version().empty())
    c.hint.clear();  // a build without CUDA cannot use the library
  if (name == "NCCL" && device_) c.common = c.detail;
  add(std::move(c));
}

void Doctor::gpu() {
  const std::string why = device::why_no_cuda();
  const int cards = nvidia_cards(around_.root);
  if (!why.empty()) {
    const bool built = !device::runtime_version().empty();
    Check c{kGpu, "GPU", cards > 0 ? Verdict::fail : Verdict::none, why,
            built ? kDriver : "install the CUDA toolkit and build with CUDA=1"};
    if (cards > 0) c.detail += "; NVIDIA cards on the bus: " + std::to_string(cards);
    c.common = "no GPU";
    add(std::move(c));
  } else {
    Check c =
        attempt(kGpu, "GPU", "run nvidia-smi for details; a GPU in exclusive mode runs one program at a time", [&] {
          const int count = device::cuda_device_count(), index = train::gpu_of(around_.local_rank, count);
          if (const std::string none = train::why_not_cuda(count, index); !none.empty()) throw Error(none);
          device_ = std::make_unique<device::Device>(device::DeviceType::cuda, index);
          found_.device = device_->name();
          const char* const which = around_.inside_mpi ? ", one of " : ", the first of ";
          return found_.device + (count > 1 ? which + std::to_string(count) : "");
        });
    c.common = device_ ? found_.device : "no GPU";
    add(std::move(c));
  }
  on_gpu(kGpu, "FP8 tensor cores", "use a chip of compute capability 8.9 or newer: Ada, Hopper, Blackwell", [&] {
    const int capability = device_->compute_capability();
    std::string text = "compute capability " + capability_text(capability);
    if (capability < kFirstFp8) throw Error(text + "; FP8 requires " + capability_text(kFirstFp8));
    return text;
  });
}

// The driver and every GPU, through NVML.
void Doctor::driver() {
  NvmlFacts facts;
  Check c = attempt(kGpu, "driver", kDriver, [&] {
    facts = read_nvml(load_nvml());
    return terminal_safe(facts.driver) + (facts.cuda > 0 ? ", supports CUDA " + cuda_text(facts.cuda) : "");
  });
  // A missing driver is no failure without a card, nor with a working GPU, where only the NVML checks are missing.
  if (c.verdict == Verdict::fail && (device_ || nvidia_cards(around_.root) == 0)) c.verdict = Verdict::none;
  if (c.verdict == Verdict::none && device_) c.hint = "install NVML, which is part of the driver: libnvidia-ml.so.1";
  add(std::move(c));
  for (std::size_t i = 0; i < facts.gpus.size(); ++i) {
    for (Check& check : gpu_checks(facts.gpus[i], i)) add(std::move(check));
  }
}

void Doctor::cuda() {
  const std::string runtime = device::runtime_version();
  if (runtime.empty()) {
    add({kCuda, "runtime", Verdict::none, "this build has no CUDA", "install the CUDA toolkit and build with CUDA=1"});
  } else {
    add({kCuda, "runtime", Verdict::pass, runtime + ", in this build, needs " + device::runtime_driver(), {}});
  }
  device_library("cuBLASLt", "install cuBLAS of CUDA 13 or 12, or add its folder to LD_LIBRARY_PATH",
                 [] { return gemm::device_library_version(); });
  device_library(
      "cuDNN",
      "install cuDNN 9, or add its folder to LD_LIBRARY_PATH; without it runs need --attention plain, which is slower",
      [] { return ops::attention_library(); });
  if (Check& cudnn = found_.checks.back(); cudnn.verdict == Verdict::pass && !device::runtime_version().empty())
    cudnn.hint = ops::attention_library_advice();
  device_library("NCCL", "several ranks need it: install NCCL 2.18 or newer, or add its folder to LD_LIBRARY_PATH",
                 [] { return comm::device_library_version(); });
}

void Doctor::products() {
  const std::string hint = "cuBLASLt or the driver does not support this chip: install CUDA 13 and its driver";
  on_gpu(kCuda, "bf16 linear", hint, [&] { return check_products(*device_, nullptr); });
  for (const quant::Recipe& recipe : quant::recipes()) {
    if (recipe.fp4()) continue;  // computed on the CPU only
    on_gpu(kCuda, "FP8 linear " + std::string(recipe.name), hint, [&] { return check_products(*device_, &recipe); });
  }
  on_gpu(kCuda, "attention", "runs on this GPU need --attention plain; see cuDNN above",
         [&] { return "fused, differs from the CPU by at most " + format_short(check_attention(*device_), 2); });
  on_gpu(kCuda, "NCCL all-reduce", "set NCCL_DEBUG=INFO to print the cause", [&] {
    check_all_reduce(*device_);
    return "one rank, exact";
  });
  const std::string_view first = quant::recipes().front().name;
  found_.native = device_ != nullptr && passed("FP8 tensor cores") && passed("FP8 linear " + std::string(first));
}

void Doctor::mpi() {
  const char* const one_rank = "runs of one rank need no MPI; several ranks need Open MPI 4 or 5";
  Check library = attempt(kLibraries, "MPI", one_rank, [] { return comm::found_library_version(); });
  library.common = library.detail;
  if (library.verdict == Verdict::fail || around_.inside_mpi) return add(library);
  const std::string mpirun = find_program(around_.path, "mpirun");
  if (!mpirun.empty()) return add(mpi_check(library.detail, mpirun));
  add({kLibraries, "MPI", Verdict::fail, library.detail + ", and no mpirun in PATH",
       "install Open MPI's programs: openmpi-bin"});
}

void Doctor::host() {
  const device::Device cpu;
  Check emulation =
      attempt(kLibraries, "FP8 emulation", "the build may be for another processor: build on this machine",
              [&] { return check_products(cpu, &quant::recipes().front()); });
  emulation.common = name_of(emulation.verdict);
  add(std::move(emulation));
  found_.emulated = passed("FP8 emulation");
  add(onednn_check(gemm::host_library()));
  add({kLibraries, "HDF5", Verdict::pass, h5::library_version(), {}});
  mpi();
}

// What each rank needs in common with the others, which variables of its environment decide, and on one rank of each
// host the other checks of the machine.
void Doctor::processor() {
  const HostCompute compute{.isa = cpu_isa(),
                            .supported = supported_isa(),
                            .wanted = around_.cpu_isa,
                            .native = gemm::native_host_bf16(),
                            .threads = device::host_threads()};
  for (Check& check : machine_checks(around_.root, compute))
    if (around_.host || !check.common.empty()) add(std::move(check));
}

std::string verdict_of_job(const Diagnosis& diagnosis) {
  const Job& job = *diagnosis.job;
  const std::string who = counted(job.ranks(), "rank") + " on " + counted(std::ssize(job.hosts), "host") +
                          (job.conflicts.empty() ? " can" : " cannot");
  std::string names;
  for (const std::string& name : job.conflicts) names += (names.empty() ? "" : ", ") + name;
  if (!names.empty()) return who + " train together: " + names;
  if (diagnosis.native) return who + " train together; FP8 runs on each, on " + diagnosis.device;
  if (diagnosis.emulated) return who + " train together; the CPUs emulate FP8: the same results, no speedup";
  return "FP8 cannot run on each of " + counted(job.ranks(), "rank");
}

json::Value text_or_null(const std::string& text) { return text.empty() ? json::Value() : json::Value(text); }

json::Value json_of(const Check& c) {
  json::Value check = json::object({{"group", c.group},
                                    {"name", c.name},
                                    {"verdict", name_of(c.verdict)},
                                    {"detail", c.detail},
                                    {"hint", text_or_null(c.hint)}});
  json::Array findings;
  for (const Finding& f : c.findings) {
    findings.push_back(json::object({{"hosts", json::Array(f.hosts.begin(), f.hosts.end())},
                                     {"verdict", name_of(f.verdict)},
                                     {"detail", f.detail},
                                     {"hint", text_or_null(f.hint)}}));
  }
  if (!findings.empty()) check.as_object().set("findings", std::move(findings));
  return check;
}

void add_job(const Job& job, json::Object& record) {
  json::Array hosts, sums;
  for (const Job::Host& host : job.hosts) hosts.push_back(json::object({{"name", host.name}, {"ranks", host.ranks}}));
  for (const AllReduce& sum : job.all_reduces) {
    sums.push_back(json::object({{"library", sum.library},
                                 {"ranks", sum.ranks},
                                 {"bytes", sum.bytes},
                                 {"seconds", sum.seconds},
                                 {"bytes_per_s", sum.bytes_per_s()}}));
  }
  record.set("together", job.conflicts.empty());
  record.set("conflicts", json::Array(job.conflicts.begin(), job.conflicts.end()));
  record.set("hosts", std::move(hosts));
  record.set("all_reduces", std::move(sums));
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  return verdict == Verdict::pass ? "pass" : verdict == Verdict::fail ? "fail" : "none";
}

Check onednn_check(const gemm::HostLibrary& library) {
  constexpr std::array kMended{3, 11, 2};
  const auto [major, minor, patch] = library.version;
  Check c{kLibraries, "oneDNN", Verdict::pass, {}, {}};
  c.detail = "oneDNN " + std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
  if (library.stops_at_avx2 && library.version < kMended) {
    c.detail += "; without AVX-512 its f32 kernels use the stack pointer as a general register";
    c.hint =
        "use oneDNN 3.11.2 or newer; with an older one a signal handler without its own stack (sigaltstack, "
        "SA_ONSTACK) corrupts memory (oneDNN issue 4845); fp8-step blocks signals";
  }
  return c;
}

Diagnosis diagnose(const Environment& around) { return Doctor(around).run(); }

std::string verdict_of(const Diagnosis& diagnosis) {
  if (diagnosis.job) return verdict_of_job(diagnosis);
  if (diagnosis.native) return "FP8 runs here, on " + diagnosis.device;
  if (diagnosis.emulated) return "FP8 cannot run here natively; the CPU emulates it: the same results, no speedup";
  return "FP8 cannot run here";
}

json::Value to_json(const Diagnosis& diagnosis) {
  json::Array checks;
  for (const Check& c : diagnosis.checks) checks.push_back(json_of(c));
  const char* const fp8 = diagnosis.native ? "native" : diagnosis.emulated ? "emulated" : "none";
  json::Value record =
      json::object({{"type", "doctor"}, {"fp8", fp8}, {"device", diagnosis.device}, {"checks", std::move(checks)}});
  if (diagnosis.job) add_job(*diagnosis.job, record.as_object());
  return record;
}

}  // namespace fp8::probe
