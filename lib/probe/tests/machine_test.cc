// Checks of machines simulated by files: present, missing and malformed values.
#include "fp8/probe/machine.h"

#include <algorithm>
#include <filesystem>

#include "fp8_test.h"

namespace fp8::probe {
namespace {

class Machine : public test::FolderTest {
 protected:
  // Writes a file of /proc or /sys below the root.
  void put(const std::string& path, const std::string& content) {
    const std::filesystem::path file = at("root") + path;
    std::filesystem::create_directories(file.parent_path());
    test::write_file(file.string(), content);
  }
  HostCompute compute{.isa = Isa::baseline, .supported = Isa::baseline, .wanted = "", .native = true, .threads = 1};
  Check check(const std::string& name) {
    const std::vector<Check> all = machine_checks(at("root"), compute);
    const auto found = std::find_if(all.begin(), all.end(), [&](const Check& c) { return c.name == name; });
    EXPECT_NE(found, all.end()) << name;
    return found == all.end() ? Check{} : *found;
  }
  void expect(const std::string& name, Verdict verdict, const std::string& detail) {
    const Check c = check(name);
    EXPECT_EQ(c.verdict, verdict) << name;
    EXPECT_EQ(c.detail, detail);
    EXPECT_EQ(c.hint.empty(), verdict != Verdict::fail) << name << ": " << c.hint;
  }
};

TEST_F(Machine, MissingFilesAreUnknown) {
  for (const char* name : {"processor", "memory"}) expect(name, Verdict::none, "unknown");
  expect("huge pages", Verdict::none, "this kernel has no transparent huge pages");
  expect("network", Verdict::none, "no interface is up: ranks on this machine only");
  expect("InfiniBand", Verdict::none, "no card");
  EXPECT_EQ(nvidia_cards(at("root")), 0);
}

TEST_F(Machine, CountsCoresOfEveryPackage) {
  std::string text;
  for (const char* ids : {"0 0", "0 1", "1 0", "1 1", "1 1"}) {
    text += "processor\t: 7\nmodel name\t: A \x1b[31mchip\nphysical id\t: " + std::string(1, ids[0]) +
            "\ncore id\t\t: " + std::string(1, ids[2]) + "\n\n";
  }
  put("/proc/cpuinfo", text);
  expect("processor", Verdict::pass, "A \\x1b[31mchip, 4 cores, 5 hardware threads");
  put("/proc/cpuinfo", "processor : 0\n");
  expect("processor", Verdict::pass, "1 processor");
}

TEST_F(Machine, InstructionSetInUseAndSupported) {
  const std::string baseline(name_of(Isa::baseline));
  expect("instruction set", Verdict::pass, baseline);
  compute.wanted = baseline;
  expect("instruction set", Verdict::pass, baseline);
  compute.wanted = "avx512";
  expect("instruction set", Verdict::pass, baseline + "; this processor lacks avx512 of FP8_CPU_ISA");
  compute.isa = Isa::avx512;
  compute.supported = Isa::avx512_bf16;
  expect("instruction set", Verdict::pass, "avx512, lowered by FP8_CPU_ISA; this processor has avx512_bf16");
}

TEST_F(Machine, Bf16Gemms) {
  EXPECT_EQ(check("bf16 GEMMs").verdict, Verdict::pass);
  compute.native = false;
  EXPECT_EQ(check("bf16 GEMMs").verdict, Verdict::none);
  EXPECT_HOLDS(check("bf16 GEMMs").detail, "no AVX-512 BF16");
  compute.supported = Isa::avx512_bf16;
  expect("bf16 GEMMs", Verdict::none, "as f32: FP8_CPU_ISA excludes AVX-512 BF16, which this processor has");
  compute.isa = Isa::avx512_bf16;
  expect("bf16 GEMMs", Verdict::none, "as f32: ONEDNN_MAX_CPU_ISA excludes AVX-512 BF16, which this processor has");
}

TEST_F(Machine, MoreThreadsThanProcessorsFails) {
  EXPECT_EQ(check("threads").verdict, Verdict::pass);
  compute.threads = 100000;
  const Check c = check("threads");
  EXPECT_EQ(c.verdict, Verdict::fail);
  EXPECT_EQ(c.detail.find("100000 threads on "), 0u) << c.detail;
  EXPECT_HOLDS(c.hint, "OMP_NUM_THREADS");
}

TEST_F(Machine, MemoryAndCgroupLimit) {
  put("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:   8388608 kB\n");
  expect("memory", Verdict::pass, "16 GiB, 8 GiB available");
  put("/sys/fs/cgroup/memory.max", "2147483648\n");
  expect("memory", Verdict::pass, "16 GiB, 8 GiB available, cgroup limit 2 GiB");
  put("/sys/fs/cgroup/memory.max", "max\n");
  expect("memory", Verdict::pass, "16 GiB, 8 GiB available");
  put("/proc/meminfo", "MemTotal: lots kB\n");
  expect("memory", Verdict::none, "unknown");
}

TEST_F(Machine, HugePages) {
  put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  expect("huge pages", Verdict::pass, "transparent, madvise");
  put("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  expect("huge pages", Verdict::fail, "disabled: matrix multiply on the CPU is slower");
  put("/sys/kernel/mm/transparent_hugepage/enabled", "]never[\n");
  expect("huge pages", Verdict::none, "this kernel has no transparent huge pages");
}

TEST_F(Machine, ActiveNetworkInterfaces) {
  put("/sys/class/net/lo/operstate", "unknown\n");
  put("/sys/class/net/eth1/operstate", "down\n");
  put("/sys/class/net/eth0/operstate", "up\n");
  put("/sys/class/net/eth0/speed", "25000\n");
  put("/sys/class/net/eth2/operstate", "up\n");
  put("/sys/class/net/eth2/speed", "-1\n");
  expect("network", Verdict::pass, "eth0 25 Gb/s, eth2");
}

TEST_F(Machine, InfiniBandPorts) {
  put("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  put("/sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
  expect("InfiniBand", Verdict::pass, "mlx5_0 port 1 400 Gb/sec (4X NDR)");
  put("/sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n");
  expect("InfiniBand", Verdict::fail, "mlx5_0 port 1 400 Gb/sec (4X NDR); not active: mlx5_1 port 1");
}

TEST_F(Machine, CountsNvidiaCards) {
  put("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
  put("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
  put("/sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n");
  put("/sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n");  // audio function of the card
  put("/sys/bus/pci/devices/0000:02:00.0/vendor", "0x1002\n");
  put("/sys/bus/pci/devices/0000:02:00.0/class", "0x030000\n");
  EXPECT_EQ(nvidia_cards(at("root")), 1);
}

}  // namespace
}  // namespace fp8::probe
