// The scheduler of the shim: runs one block at a time with one fiber per thread, and resumes the ready fibers in rounds
// until all have ended.
#include "cuda_shim.h"

#include <ucontext.h>

#include <array>
#include <exception>
#include <memory>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#define FP8_START_SWITCH(save, bottom, size) __sanitizer_start_switch_fiber(save, bottom, size)
#define FP8_FINISH_SWITCH(save, bottom, size) __sanitizer_finish_switch_fiber(save, bottom, size)
#else
#define FP8_START_SWITCH(save, bottom, size) ((void)(save))
#define FP8_FINISH_SWITCH(save, bottom, size) ((void)(save))
#endif

namespace fp8::shim {

Indices now;

namespace {

constexpr std::size_t kStack = 256 << 10;
constexpr int kWarp = 32;

enum class State : std::uint8_t { ready, at_block, at_warp, ended };

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;  // NOLINT(modernize-avoid-c-arrays): a fiber's stack is bytes
  void* fake_stack = nullptr;
  State state = State::ready;
  unsigned mask = 0;  // lanes of the warp barrier at which the fiber waits
  dim3 index;
  // Two slots: a lane may write the next exchange before another has read this one.
  std::array<std::array<char, 16>, 2> left;
  int turn = 0;
};

// The running block. The scheduler and its fibers share one system thread.
struct Block {
  std::vector<Fiber> fibers;
  const std::function<void()>* body = nullptr;
  std::size_t current = 0;
  ucontext_t scheduler;
  void* scheduler_fake_stack = nullptr;
  const void* scheduler_bottom = nullptr;
  std::size_t scheduler_size = 0;
  std::exception_ptr failure;
};
Block block;

Fiber& self() { return block.fibers[block.current]; }

void leave(State state) {
  Fiber& f = self();
  f.state = state;
  FP8_START_SWITCH(state == State::ended ? nullptr : &f.fake_stack, block.scheduler_bottom, block.scheduler_size);
  swapcontext(&f.context, &block.scheduler);
  FP8_FINISH_SWITCH(f.fake_stack, &block.scheduler_bottom, &block.scheduler_size);
}

void entry() {
  FP8_FINISH_SWITCH(nullptr, &block.scheduler_bottom, &block.scheduler_size);
  try {
    (*block.body)();
  } catch (...) {
    if (!block.failure) block.failure = std::current_exception();
  }
  leave(State::ended);
}

void resume(std::size_t i) {
  block.current = i;
  Fiber& f = self();
  now.thread = f.index;
  FP8_START_SWITCH(&block.scheduler_fake_stack, f.stack.get(), kStack);
  swapcontext(&block.scheduler, &f.context);
  FP8_FINISH_SWITCH(block.scheduler_fake_stack, nullptr, nullptr);
}

void begin(std::size_t threads, dim3 size) {
  if (block.fibers.size() < threads) block.fibers.resize(threads);
  for (std::size_t i = 0; i < threads; ++i) {
    Fiber& f = block.fibers[i];
    if (!f.stack) f.stack = std::make_unique<char[]>(kStack);  // NOLINT(modernize-avoid-c-arrays)
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.get();
    f.context.uc_stack.ss_size = kStack;
    f.context.uc_link = nullptr;
    makecontext(&f.context, entry, 0);
    f.state = State::ready;
    f.fake_stack = nullptr;
    f.turn = 0;
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
  return true;
}

void run_block(const std::string& name, std::size_t threads, dim3 size) {
  begin(threads, size);
  for (;;) {
    std::size_t ended = 0, at_block = 0, at_warp = 0;
    for (std::size_t i = 0; i < threads; ++i) {
      if (block.fibers[i].state == State::ready) resume(i);
      ended += block.fibers[i].state == State::ended;
      at_block += block.fibers[i].state == State::at_block;
      at_warp += block.fibers[i].state == State::at_warp;
    }
    if (block.failure) std::rethrow_exception(std::exchange(block.failure, nullptr));
    if (ended == threads) return;
    if (!release(threads))
      throw std::runtime_error(name + ": deadlock: " + std::to_string(at_block) + " threads wait at a block barrier, " +
                               std::to_string(at_warp) + " at a warp barrier, " + std::to_string(ended) +
                               " have ended");
  }
}

}  // namespace

void run(const std::string& name, dim3 grid, dim3 size, const std::function<void()>& body) {
  const std::size_t threads = std::size_t{size.x} * size.y * size.z;
  if (threads == 0 || threads > 1024)
    throw std::runtime_error(name + ": invalid block size: " + std::to_string(threads) + " threads");
  block.body = &body;
  now.block_size = size;
  now.grid_size = grid;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        now.block = dim3(x, y, z);
        run_block(name, threads, size);
      }
    }
  }
}

void block_barrier() { leave(State::at_block); }

void warp_barrier(unsigned mask) {
  self().mask = mask;
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
  warp_barrier(mask);
  if ((mask >> from & 1u) == 0) throw std::runtime_error("a shuffle reads a lane outside of its mask");
  std::memcpy(theirs, block.fibers[other].left[static_cast<std::size_t>(turn)].data(), bytes);
}

}  // namespace fp8::shim
