// Fibres: a thread that meets others gives way to the next one. A fibre whose thread has ended runs
// the next thread that has not begun, so kernels without meetings need one fibre and no switches.
// SPDX-License-Identifier: Apache-2.0
#include "device/testing/host_threads.h"

#include <ucontext.h>

#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace thinwire::device {
namespace {

constexpr size_t kStack = size_t{64} << 10;
constexpr uint32_t kWarp = 32;

class Block;
thread_local HostPlace place;
thread_local Block* running = nullptr;

struct Fibre {
  ucontext_t first;  // as it begins; from then on it is at `at`
  std::jmp_buf at;
  std::unique_ptr<std::byte[]> stack;
  uint32_t thread = 0;
  bool alive = false;
  Meeting waits = Meeting::kNone;
};

// Idle ones, for the blocks to come: stacks that are made for each kernel cost more than the
// kernels.
thread_local std::vector<std::unique_ptr<Fibre>> spare;

class Block {
 public:
  Block(uint32_t threads, bool backward, const std::function<void()>& body)
      : threads_(threads), backward_(backward), body_(body), rooms_(threads / kWarp) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  ~Block() {
    for (auto& fibre : fibres_) spare.push_back(std::move(fibre));
  }

  void run() {
    running = this;
    begun_ = ended_ = 0;
    while (ended_ < threads_) {
      if (begun_ < threads_) {
        resume(idle_fibre());
      } else if (!release_meeting()) {
        std::fputs("kernel: threads wait for each other in vain\n", stderr);
        std::abort();
      }
    }
    running = nullptr;
  }

  void meet(Meeting meeting) {
    now_->waits = meeting;
    give_way();
  }

  std::array<uint64_t, kWarp>& room() { return rooms_[place.thread.x / kWarp]; }

 private:
  // A fibre's life: it goes on with whichever block runs.
  static void enter() {
    for (;;) running->live();
  }

  // Threads one after another, as long as some have not begun. This block may be gone when the
  // fibre goes on.
  void live() {
    while (begun_ < threads_) {
      now_->thread = backward_ ? threads_ - 1 - begun_ : begun_;
      ++begun_;
      place.thread.x = now_->thread;
      body_();
      ++ended_;
    }
    idle_.push_back(now_);
    give_way();
  }

  Fibre& idle_fibre() {
    if (idle_.empty()) {
      if (spare.empty()) {
        spare.push_back(std::make_unique<Fibre>());
        prepare(spare.back().get());
      }
      idle_.push_back(fibres_.emplace_back(std::move(spare.back())).get());
      spare.pop_back();
    }
    Fibre* const fibre = idle_.back();
    idle_.pop_back();
    return *fibre;
  }

  [[gnu::noinline]] static void prepare(Fibre* fibre) {
    fibre->stack = std::make_unique_for_overwrite<std::byte[]>(kStack);
    getcontext(&fibre->first);
    fibre->first.uc_stack.ss_sp = fibre->stack.get();
    fibre->first.uc_stack.ss_size = kStack;
    fibre->first.uc_link = nullptr;
    makecontext(&fibre->first, enter, 0);
  }

  // swapcontext would ask the system for the signal mask each time: half of the tests' time.
  // Not inlined: what a caller keeps in registers must survive the jump.
  [[gnu::noinline]] void give_way() {
    if (_setjmp(now_->at) == 0) _longjmp(scheduler_, 1);
  }

  void resume(Fibre& fibre) {
    now_ = &fibre;
    place.thread.x = fibre.thread;
    fibre.waits = Meeting::kNone;
    go_on();
  }

  [[gnu::noinline]] void go_on() {
    if (_setjmp(scheduler_) != 0) return;
    if (now_->alive) _longjmp(now_->at, 1);
    now_->alive = true;
    setcontext(&now_->first);
  }

  // Lets go on who have all met: the block, or else a warp.
  bool release_meeting() {
    bool all_of_block = true;
    std::vector<bool> torn(rooms_.size());  // warps of which some wait for the block
    std::vector<Fibre*> waiting;
    for (const auto& fibre : fibres_) {
      if (fibre->waits == Meeting::kNone) continue;
      waiting.push_back(fibre.get());
      if (fibre->waits == Meeting::kBlock)
        torn[fibre->thread / kWarp] = true;
      else
        all_of_block = false;
    }
    bool moved = false;
    for (Fibre* fibre : waiting) {
      if (!all_of_block && torn[fibre->thread / kWarp]) continue;
      resume(*fibre);
      moved = true;
    }
    return moved;
  }

  uint32_t threads_;
  bool backward_;
  const std::function<void()>& body_;
  std::vector<std::array<uint64_t, kWarp>> rooms_;
  std::vector<std::unique_ptr<Fibre>> fibres_;
  std::vector<Fibre*> idle_;
  Fibre* now_ = nullptr;
  std::jmp_buf scheduler_;
  uint32_t begun_ = 0, ended_ = 0;
};

}  // namespace

const HostPlace& host_place() noexcept { return place; }

void host_meet(Meeting meeting) { running->meet(meeting); }

std::array<uint64_t, 32>& host_room() noexcept { return running->room(); }

void run_on_host(uint32_t blocks, uint32_t threads, bool backward,
                 const std::function<void()>& body) {
  Block block(threads, backward, body);
  for (uint32_t i = 0; i < blocks; ++i) {
    place = {.thread = {},
             .block = {backward ? blocks - 1 - i : i},
             .threads = {threads},
             .blocks = {blocks}};
    block.run();
  }
}

}  // namespace thinwire::device
