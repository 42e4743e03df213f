// Selecting and opening a device, of the same type on all ranks.
#include "fp8/train/device_setup.h"

#include <algorithm>

#include "fp8/cli/command.h"

namespace fp8::train {
namespace {

using device::DeviceType;

constexpr int kFirstFp8 = 89;  // lowest compute capability with FP8 GEMMs
constexpr int kHopper = 90;    // compute capability of the GPU that is planned for without one

bool no_gpu_anywhere(comm::Communicator& host_comm) {
  std::int64_t most = device::cuda_device_count();
  host_comm.all_reduce(std::span<std::int64_t>(&most, 1), comm::Reduce::max);
  return most == 0;
}

struct Choice {
  DeviceType device;
  int index;           // index of the GPU
  std::string note{};  // note for the user
};

Choice choose(std::optional<DeviceType> wanted, comm::Communicator& host_comm) {
  if (wanted == DeviceType::host) return {DeviceType::host, 0};
  const int devices = device::cuda_device_count(), index = gpu_of(comm::local_rank(), devices);
  const std::string why = why_not_cuda(devices, index);
  const std::vector<std::string> cards =
      host_comm.all_gather(why.empty() ? device::cuda_identity(index) : std::string());
  const std::string shared = why_shared(cards, host_comm);
  if (wanted)
    comm::agree(host_comm, [&] {
      if (!why.empty() || !shared.empty())
        throw Error(cli::flag_name("device") + " cuda: " + (why.empty() ? shared : why));
    });
  std::int64_t can = why.empty() && shared.empty() ? 1 : 0;
  host_comm.all_reduce(std::span<std::int64_t>(&can, 1), comm::Reduce::min);
  if (can != 0) return {DeviceType::cuda, index};
  return {DeviceType::host, index, note_of_cpu(cards, host_comm)};
}

}  // namespace

int gpu_of(int local_rank, int devices) { return devices == 1 ? 0 : local_rank; }

std::string why_not_cuda(int devices, int index) {
  if (devices == 0) return device::why_no_cuda();
  if (index < devices) return {};
  return std::to_string(devices) + " GPUs for more ranks on this machine; each rank needs a GPU of its own";
}

std::string why_shared(std::span<const std::string> cards, const comm::Communicator& ranks) {
  for (std::size_t i = 0; i < cards.size(); ++i) {
    const auto other = std::find(cards.begin(), cards.begin() + static_cast<std::ptrdiff_t>(i), cards[i]);
    if (!cards[i].empty() && other != cards.begin() + static_cast<std::ptrdiff_t>(i))
      return "ranks " + ranks.text_of_rank(static_cast<int>(other - cards.begin())) + " and " +
             ranks.text_of_rank(static_cast<int>(i)) + " have the same GPU, which serves one";
  }
  return {};
}

std::string note_of_cpu(std::span<const std::string> cards, const comm::Communicator& ranks) {
  const auto without = std::ranges::find(cards, std::string());
  const std::string shared = why_shared(cards, ranks);
  if (std::ranges::count(cards, std::string()) == std::ssize(cards)) return {};
  const std::string why = without == cards.end()
                              ? shared
                              : "rank " + ranks.text_of_rank(static_cast<int>(without - cards.begin())) +
                                    " has no GPU of its own, others have one";
  return why.empty() ? why
                     : why + ": all ranks compute on the CPU (" + cli::flag_name("device") + " cuda refuses that)";
}

void check_fp8(const settings::PrecisionConfig& precision, DeviceType device, int capability, const std::string& name) {
  if (device == DeviceType::cuda && std::ranges::any_of(precision.recipes_used(), &quant::Recipe::fp4))
    throw Error(cli::flag_name("recipe") + " nvfp4: is computed on the CPU only; add " + cli::flag_name("device") +
                " cpu");
  const auto runs_native = [](const quant::Recipe* r) { return !r->emulated_everywhere(); };
  const bool native =
      !precision.emulate && device == DeviceType::cuda && std::ranges::any_of(precision.recipes_used(), runs_native);
  if (native && capability < kFirstFp8)
    throw Error(cli::flag_name("precision") + " fp8: " + name + " has no FP8 matmul: " + cli::flag_name("emulate") +
                " multiplies FP8 values as bf16, " + cli::flag_name("device") + " cpu does so too, and " +
                cli::flag_name("precision") + " bf16 has none");
  if (device == DeviceType::cuda && precision.accumulation != gemm::Accumulation::f32)
    throw Error(cli::flag_name("accumulate") + ": " + std::string(name_of(precision.accumulation)) +
                " is computed on the CPU only; add " + cli::flag_name("device") + " cpu, or leave it out to sum as " +
                name + " does");
}

DeviceSetup::DeviceSetup(std::optional<DeviceType> wanted, const settings::PrecisionConfig& precision,
                         const comm::Mesh& host, bool plan_only)
    : host_(host), mesh_(host) {
  comm::Communicator& host_comm = host.all();
  if (plan_only && wanted == DeviceType::cuda && no_gpu_anywhere(host_comm)) {
    comm::agree(host_comm, [&] { check_fp8(precision, DeviceType::cuda, kHopper, "a GPU"); });
    note_ = "no GPU here: the plan is for one with compute capability 9.0";
    context_.device = DeviceType::cuda;
    return;
  }
  const Choice chosen = choose(wanted, host_comm);
  note_ = chosen.note;
  comm::agree(host_comm, [&] {
    device_ = std::make_unique<device::Device>(chosen.device, chosen.device == DeviceType::host ? 0 : chosen.index);
    context_ = device_->context();
    check_fp8(precision, chosen.device, device_->compute_capability(), device_->name());
  });
  mesh_ = comm::on_device(host_, context_);
}

}  // namespace fp8::train
