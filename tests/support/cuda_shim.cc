// The scheduler of the shim: runs one block at a time with one fiber per thread, and resumes the ready fibers in rounds
// until all have ended.
#include "cuda_shim.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <ucontext.h>

#include <array>
#include <cstdlib>
#include <exception>
#include <memory>
#include <numeric>
#include <sstream>

#include "shim_hooks.h"
#include "shim_memory.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#define FP8_START_SWITCH(save, bottom, size) __sanitizer_start_switch_fiber(save, bottom, size)
#define FP8_FINISH_SWITCH(save, bottom, size) __sanitizer_finish_switch_fiber(save, bottom, size)
constexpr bool kKeepsFibers = false;  // a fiber gives up its frames for the sanitizer when its thread ends
#else
#define FP8_START_SWITCH(save, bottom, size) ((void)(save))
#define FP8_FINISH_SWITCH(save, bottom, size) ((void)(save))
constexpr bool kKeepsFibers = true;
#endif

namespace fp8::shim {

Indices now;

namespace {

constexpr std::size_t kStack = 256 << 10;
constexpr std::size_t kMostThreads = 1024;  // limit for the threads of a block
constexpr unsigned kMostBlocks = 65535;     // limit for the blocks of a grid along y and z
constexpr unsigned kMostDeep = 64;          // threads of a block along z
constexpr int kWarp = 32;

enum class State : std::uint8_t { ready, at_block, at_warp, ended };

struct Fiber {
  ucontext_t context;
  jmp_buf jump;
  bool started = false;  // it waits in entry() for its next thread, or in a thread
  char* stack = nullptr;
  void* fake_stack = nullptr;
  State state = State::ready;
  unsigned mask = 0;           // lanes of the warp barrier at which the fiber waits
  bool orders_memory = false;  // whether that barrier orders memory
  bool in_kernel = false;      // past begin_kernel()
  dim3 index;
  // Two slots: a lane may write the next exchange before another has read this one.
  std::array<std::array<char, 16>, 2> left;
  int turn = 0;
};

// The running block. The scheduler and its fibers share one system thread.
struct Block {
  std::vector<Fiber> fibers;
  std::unique_ptr<char[]> stacks;  // NOLINT(modernize-avoid-c-arrays): of all fibers, kStack bytes each
  const std::function<void()>* body = nullptr;
  const std::string* name = nullptr;
  Work* work = nullptr;
  std::array<std::uint16_t, kMostThreads / kWarp> warp_epochs{};  // memory-ordering barriers of each warp so far
  std::size_t current = 0;
  ucontext_t scheduler;
  jmp_buf jump;  // state of the scheduler
  void* scheduler_fake_stack = nullptr;
  const void* scheduler_bottom = nullptr;
  std::size_t scheduler_size = 0;
  std::exception_ptr failure;
};
Block block;
Memory memory;
bool in_kernel = false;  // the running code is a kernel's
bool in_atomic = false;

Fiber& self() { return block.fibers[block.current]; }

// Switches between the scheduler and fibers. swapcontext makes a system call for the signal mask, so it only starts
// fibers, except under AddressSanitizer, which does not allow jumps between stacks.
#ifdef __SANITIZE_ADDRESS__
void to_scheduler() { swapcontext(&self().context, &block.scheduler); }
void to_fiber() { swapcontext(&block.scheduler, &self().context); }
#else
void to_scheduler() {
  if (_setjmp(self().jump) == 0) _longjmp(block.jump, 1);
}
void to_fiber() {
  if (_setjmp(block.jump) != 0) return;
  if (self().started) _longjmp(self().jump, 1);
  self().started = true;
  setcontext(&self().context);
}
#endif

void leave(State state) {
  Fiber& f = self();
  f.state = state;
  in_kernel = false;
  FP8_START_SWITCH(state == State::ended ? nullptr : &f.fake_stack, block.scheduler_bottom, block.scheduler_size);
  to_scheduler();
  FP8_FINISH_SWITCH(f.fake_stack, &block.scheduler_bottom, &block.scheduler_size);
  in_kernel = f.in_kernel;
}

// Ends the launch with an error of the running thread. Does not unwind the thread's stack, because the compiler does
// not expect exceptions from the functions that check memory.
[[noreturn]] void fail(const std::string& what) {
  const dim3 at = now.thread, of = now.block;
  std::ostringstream message;
  message << *block.name << ": thread " << at.x << "," << at.y << "," << at.z << " of block " << of.x << "," << of.y
          << "," << of.z << " " << what;
  in_atomic = false;
  if (!block.failure) block.failure = std::make_exception_ptr(std::runtime_error(message.str()));
  for (;;) leave(State::ended);
}

// The command that prints the source line of an instruction of this program.
std::string line_of(const void* instruction) {
  Dl_info object{};
  if (dladdr(instruction, &object) == 0) return {};
  std::ostringstream command;
  command << " (addr2line -fCie " << object.dli_fname << " 0x" << std::hex
          << reinterpret_cast<std::uintptr_t>(instruction) - reinterpret_cast<std::uintptr_t>(object.dli_fbase) - 1
          << ")";
  return command.str();
}

// The positions of n in an order; `seed` selects one of the shuffled orders.
class Permutation {
 public:
  Permutation(std::size_t n, Order order, std::size_t seed) : n_(n) {
    if (order == Order::reverse) step_ = first_ = n - 1;
    if (order != Order::shuffled || n < 3) return;
    step_ = 7 + seed * 2 % 61;
    while (std::gcd(step_, n) != 1) ++step_;
    first_ = seed;
  }
  std::size_t operator()(std::size_t i) const { return (i * step_ + first_) % n_; }

 private:
  std::size_t n_, step_ = 1, first_ = 0;
};

// Runs the threads with this number, one of each block. Starting a fiber takes as long as a small thread.
void entry() {
  FP8_FINISH_SWITCH(nullptr, &block.scheduler_bottom, &block.scheduler_size);
  for (;;) {
    try {
      (*block.body)();
    } catch (...) {
      if (!block.failure) block.failure = std::current_exception();
    }
    self().in_kernel = false;
    leave(State::ended);
  }
}

void resume(std::size_t i) {
  block.current = i;
  Fiber& f = self();
  now.thread = f.index;
  FP8_START_SWITCH(&block.scheduler_fake_stack, f.stack, kStack);
  to_fiber();
  FP8_FINISH_SWITCH(block.scheduler_fake_stack, nullptr, nullptr);
}

void prepare(Fiber& f, std::size_t i) {
  f.stack = block.stacks.get() + i * kStack;
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = f.stack;
  f.context.uc_stack.ss_size = kStack;
  f.context.uc_link = nullptr;
  makecontext(&f.context, entry, 0);
  f.fake_stack = nullptr;
  f.started = false;
}

void begin(std::size_t threads, dim3 size) {
  if (!block.stacks) {
    block.fibers.resize(kMostThreads);
    block.stacks = std::make_unique_for_overwrite<char[]>(kMostThreads * kStack);  // NOLINT(modernize-avoid-c-arrays)
  }
  for (std::size_t i = 0; i < threads; ++i) {
    Fiber& f = block.fibers[i];
    if (!f.started || !kKeepsFibers) prepare(f, i);
    f.state = State::ready;
    f.turn = 0;
    f.in_kernel = false;
    const auto n = static_cast<unsigned>(i);
    f.index = dim3(n % size.x, n / size.x % size.y, n / (size.x * size.y));
  }
}

// Makes the fibers ready whose barrier is complete. Returns false if no barrier is complete.
bool release(std::size_t threads) {
  bool any = false;
  for (std::size_t first = 0; first < threads; first += kWarp) {
    for (std::size_t i = first; i < std::min(threads, first + kWarp); ++i) {
      if (block.fibers[i].state != State::at_warp) continue;
      const unsigned mask = block.fibers[i].mask;
      bool complete = (mask >> (i - first) & 1u) != 0;
      for (std::size_t lane = 0; lane < kWarp; ++lane) {
        if ((mask >> lane & 1u) == 0) continue;
        complete = complete && first + lane < threads && block.fibers[first + lane].state == State::at_warp &&
                   block.fibers[first + lane].mask == mask;
      }
      if (!complete) continue;
      any = true;
      if (block.fibers[i].orders_memory) ++block.warp_epochs[i / kWarp];
      for (std::size_t lane = 0; lane < kWarp; ++lane) {
        if ((mask >> lane & 1u) != 0) block.fibers[first + lane].state = State::ready;
      }
    }
  }
  if (any) return true;
  for (std::size_t i = 0; i < threads; ++i) {
    if (block.fibers[i].state != State::at_block) return false;
  }
  for (std::size_t i = 0; i < threads; ++i) block.fibers[i].state = State::ready;
  memory.begin_interval();
  return true;
}

// Ends a launch with an error. Fibers may wait in the middle of a thread, so all start anew.
[[noreturn]] void refuse(const std::exception_ptr& error) {
  for (Fiber& f : block.fibers) f.started = false;
  std::rethrow_exception(error);
}

void run_block(const std::string& name, std::size_t threads, dim3 size, const Permutation& order) {
  begin(threads, size);
  memory.begin_block();
  block.warp_epochs.fill(0);
  for (;;) {
    std::size_t ended = 0, at_block = 0, at_warp = 0;
    for (std::size_t n = 0; n < threads; ++n) {
      const std::size_t i = order(n);
      if (block.fibers[i].state == State::ready) resume(i);
      ended += block.fibers[i].state == State::ended;
      at_block += block.fibers[i].state == State::at_block;
      at_warp += block.fibers[i].state == State::at_warp;
    }
    if (block.failure) refuse(std::exchange(block.failure, nullptr));
    if (ended == threads) return;
    if (!release(threads))
      refuse(std::make_exception_ptr(std::runtime_error(
          name + ": deadlock: " + std::to_string(at_block) + " threads wait at a block barrier, " +
          std::to_string(at_warp) + " at a warp barrier, " + std::to_string(ended) + " have ended")));
  }
}

// Throws if CUDA refuses such a launch.
void check_sizes(const std::string& name, dim3 grid, dim3 size) {
  const auto text = [](dim3 d) {
    return std::to_string(d.x) + " x " + std::to_string(d.y) + " x " + std::to_string(d.z);
  };
  if (grid.x > 0x7FFFFFFFu || grid.y > kMostBlocks || grid.z > kMostBlocks)
    throw std::runtime_error(name + ": a grid of " + text(grid) + " blocks is too large");
  const std::size_t threads = std::size_t{size.x} * size.y * size.z;
  if (threads == 0 || threads > kMostThreads || size.z > kMostDeep)
    throw std::runtime_error(name + ": invalid block size: " + text(size) + " threads");
}

// Not a part of access(), most of whose calls are for local variables and indices and need no stack frame.
[[gnu::noinline]] void record(std::uintptr_t address, std::size_t bytes, Access kind, const void* caller) {
  const bool writes = kind == Access::write;
  if (in_atomic) kind = Access::atomic;
  static std::string wrong;  // fail() does not unwind
  std::size_t fresh = 0;
  if (!memory.access(address, bytes, kind, static_cast<unsigned>(block.current),
                     block.warp_epochs[block.current / kWarp], fresh, wrong))
    fail(wrong + line_of(caller));
  if (memory.shared().has(address)) return;
  (writes ? block.work->written : block.work->read) += fresh;
  block.work->accessed += bytes;
}

}  // namespace

Order next_order() {
  static const char* const chosen = std::getenv("FP8_SHIM_ORDER");
  static unsigned launches = 0;
  constexpr std::array<const char*, 3> kNames{"forward", "reverse", "shuffled"};
  if (chosen == nullptr) return static_cast<Order>(launches++ % kNames.size());
  const auto* const found = std::find(kNames.begin(), kNames.end(), std::string(chosen));
  if (found == kNames.end())
    throw std::runtime_error("FP8_SHIM_ORDER must be forward, reverse or shuffled, not " + std::string(chosen));
  return static_cast<Order>(found - kNames.begin());
}

std::map<std::string, Work>& work() {
  static std::map<std::string, Work> all;
  return all;
}

// The newest object of Launches.
class Recorder {
 public:
  static Blocks blocks() { return newest == nullptr ? Blocks::all : newest->run_; }
  // The first of n blocks that run.
  static std::size_t first(std::size_t n) { return n - std::min(n, blocks() == Blocks::last ? newest->count_ : n); }
  static void record(dim3 grid) {
    if (newest != nullptr) newest->grids_.push_back({grid.x, grid.y, grid.z});
  }
  static inline const Launches* newest = nullptr;
};

Launches::Launches(Blocks run, std::size_t count)
    : run_(run), count_(count), outer_(std::exchange(Recorder::newest, this)) {}
Launches::~Launches() { Recorder::newest = outer_; }

int multiprocessors() {
  constexpr std::array kOfBlocks{3, 1 << 20, 132};
  return kOfBlocks[static_cast<std::size_t>(Recorder::blocks())];
}

void run(const std::string& name, dim3 grid, dim3 size, const std::function<void()>& body, Order order) {
  static std::size_t seed = 0;
  check_sizes(name, grid, size);
  Recorder::record(grid);
  if (Recorder::blocks() == Blocks::none) return;
  block.body = &body;
  block.name = &name;
  block.work = &work()[name];
  ++block.work->launches;
  now.block_size = size;
  now.grid_size = grid;
  memory.begin_launch();
  const std::size_t blocks = std::size_t{grid.x} * grid.y * grid.z;
  ++seed;
  const std::size_t first = Recorder::first(blocks), threads = std::size_t{size.x} * size.y * size.z;
  const Permutation order_of_blocks(blocks - first, order, seed), order_of_threads(threads, order, seed);
  for (std::size_t n = first; n < blocks; ++n) {
    const std::size_t i = first + order_of_blocks(n - first);
    now.block = dim3(static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
                     static_cast<unsigned>(i / grid.x / grid.y));
    run_block(name, threads, size, order_of_threads);
  }
}

void begin_kernel() {
  self().in_kernel = true;
  in_kernel = true;
}

void access(const void* at, std::size_t bytes, Access kind, const void* caller) {
  const auto within = [at](const void* begin, std::size_t size) {
    return reinterpret_cast<std::uintptr_t>(at) - reinterpret_cast<std::uintptr_t>(begin) < size;
  };
  if (!in_kernel || within(&now, sizeof now) || within(block.stacks.get(), kMostThreads * kStack)) return;
  record(reinterpret_cast<std::uintptr_t>(at), bytes, kind, caller);
}

void misaligned(const void* at, std::size_t alignment, const char* file, std::uint32_t line) {
  if (!in_kernel) return;
  std::ostringstream what;
  what << "accesses the address " << at << ", which is not a multiple of " << alignment << " (" << file << ":" << line
       << ")";
  fail(what.str());
}

Atomic::Atomic() { in_atomic = true; }
Atomic::~Atomic() { in_atomic = false; }

void block_barrier() { leave(State::at_block); }

void warp_barrier(unsigned mask, bool orders_memory) {
  self().mask = mask;
  self().orders_memory = orders_memory;
  leave(State::at_warp);
}

int lane() {
  const std::size_t warp = block.current / kWarp * kWarp;
  return static_cast<int>(block.current - warp);
}

void exchange(unsigned mask, const void* mine, void* theirs, std::size_t bytes, int from) {
  if (bytes > 16) throw std::runtime_error("a shuffle of more than 16 bytes");
  const int turn = self().turn;
  self().turn = 1 - turn;
  std::memcpy(self().left[static_cast<std::size_t>(turn)].data(), mine, bytes);
  const std::size_t other = block.current / kWarp * kWarp + static_cast<std::size_t>(from);
  warp_barrier(mask, false);
  if ((mask >> from & 1u) == 0) throw std::runtime_error("a shuffle reads a lane outside of its mask");
  std::memcpy(theirs, block.fibers[other].left[static_cast<std::size_t>(turn)].data(), bytes);
}

}  // namespace fp8::shim
