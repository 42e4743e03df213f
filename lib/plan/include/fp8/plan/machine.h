/// A machine that a step is planned for: the rates that its kernels and links reach, each as a pair, since sources
/// differ: the one that makes a step slow, and the one that makes it fast. Read from a JSON file; see fp8-machine(5).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp8/device/profile.h"
#include "fp8/json/value.h"

namespace fp8::plan {

/// The two values of a figure.
struct Range {
  double slow = 0, fast = 0;  ///< makes a step slow, or fast
  /// One of them.
  double at(bool favourable) const { return favourable ? fast : slow; }
};

/// A GEMM C [m, n] summed over k whose rate has been measured.
struct GemmShape {
  double m = 0, n = 0, k = 0;  ///< its sizes
  Range rate;                  ///< FLOP/s
};

/// GEMMs of one kind of operands.
struct GemmRates {
  Range rate;                       ///< FLOP/s of a large GEMM
  double depth = 0;                 ///< contraction at which half of the rate is reached: rate x k / (k + depth)
  std::vector<GemmShape> shapes{};  ///< if not empty, rates follow from these alone

  /// FLOP/s of C [m, n] summed over k from `shapes`, which are not empty: their geometric mean, weighted with the
  /// inverse fourth power of the distance in the logarithms of m, n and k.
  double near(double m, double n, double k, bool favourable) const;
};

/// A figure that depends on a size: pairs of the size and the value, in increasing order of the size.
using Curve = std::vector<std::pair<double, Range>>;

/// Links between ranks.
struct Link {
  Range rate;  ///< bytes/s of a rank in each direction
  Range hop;   ///< seconds of one of the ranks - 1 hops of a ring
};

/// The host on which a machine was measured.
struct MeasuredHost {
  std::string name;       ///< host_name()
  std::string processor;  ///< model of its CPU
  int cores = 0;          ///< that the measuring process could use

  /// Whether all are equal.
  bool operator==(const MeasuredHost&) const = default;
};

/// A machine.
struct Machine {
  std::string name;                                      ///< for tables
  std::optional<MeasuredHost> host;                      ///< nothing: not measured by fp8-bench
  device::DeviceType device = device::DeviceType::cuda;  ///< what computes
  std::size_t memory = 0;                                ///< bytes that a rank can use
  int ranks_per_host = 8;                                ///< GPUs of a host
  int linked_ranks = 8;         ///< consecutive ranks between which `link` is; others have `network`
  int compute_capability = 90;  ///< of the GPU, 90 for 9.0; 0 for a CPU
  int processors = 132;         ///< multiprocessors, over which tiles of a GEMM are divided
  int cores = 0;  ///< of a host whose ranks share its memory and the rates of computation; 0: each rank has its own
  /// GEMMs by kind of operands: FP8 with fast accumulation (forward), without (backward), and with scales of blocks.
  GemmRates f32, bf16, fp8, fp8_accurate, fp8_blocks;
  std::optional<GemmRates> fp4;  ///< GEMMs of FP4 operands with scales of 16 elements; nothing: the chip has none
  Curve attention_forward, attention_backward;  ///< FLOP/s by positions, where a causal mask counts half
  Curve attention_heads;                        ///< share of these rates by heads x sequences x positions / 4096
  Range cast, kernel, optimizer;                ///< bytes/s of casts, of other kernels, of the update
  std::map<std::string, Curve, std::less<>> operations;  ///< bytes/s by bytes, by name; they precede the rates above
  Range launch;                                          ///< seconds from the end of a kernel to the begin of the next
  Range host_launch;                                     ///< seconds of the host for a launch
  Link link, network;                                    ///< inside and outside of linked ranks
  Range contention;  ///< share of hidden communication by which compute takes longer

  /// The part of a host with `cores` that one of `ranks` ranks has; the machine itself without them.
  Machine share_of(int ranks) const;
  /// The value of a curve at a size, linear in its logarithm between the pairs, and that of the ends beyond.
  static double value(const Curve& curve, double size, bool favourable);
};

/// Reads a machine of share/machines or a file, with `keys` (KEY=VALUE; a dot selects a key of an object) set. Throws
/// Error naming the file and the key for what is missing, unknown, of another type, or not positive.
Machine open_machine(const std::string& name_or_path, const std::vector<std::string>& keys);

/// The file in which fp8-bench stores the machine that it measured: fp8/machine.json in $XDG_CONFIG_HOME or, without
/// it, in $HOME/.config. Empty if neither is set.
std::string stored_machine_path();

/// The machine of a plan.
struct FoundMachine {
  std::optional<Machine> machine;  ///< nothing: none was asked for, and none is stored
  std::string note;                ///< for the user: the stored file that is used, or why it is not
};

/// The machine of `name_or_path` or, if that is empty, of stored_machine_path(), which is used on the host where it was
/// measured alone. Throws as open_machine().
FoundMachine find_machine(const std::string& name_or_path, const std::vector<std::string>& keys);

/// This host, with the cores that the process may use.
MeasuredHost this_host();

}  // namespace fp8::plan
