// Benchmark of one step of an exchange without a wire: its own work with one rank and with two
// threads.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <barrier>
#include <thread>

#include "bench/side_by_side.h"
#include "thinwire/exchange.h"

namespace thinwire {
namespace {

constexpr size_t kTensors = 10;
constexpr size_t kCount = 1'000'000;  // each

// Ranks 1 and up: threads that take a step whenever rank 0 does.
class Team {
 public:
  Team(int ranks, const ExchangeOptions& options) : barrier_(ranks) {
    auto groups = make_local_groups(ranks);
    for (int rank = 1; rank < ranks; ++rank)
      threads_.emplace_back([this, options, group = std::move(groups[static_cast<size_t>(rank)])] {
        Rank other(*group, options);
        for (barrier_.arrive_and_wait(); !over_; barrier_.arrive_and_wait()) other.step();
      });
    group_ = std::move(groups[0]);
    first_ = std::make_unique<Rank>(*group_, options);
  }

  ~Team() {
    over_ = true;
    barrier_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }

  void prepare() { first_->fill(); }

  void step() {
    barrier_.arrive_and_wait();
    first_->step();
  }

 private:
  class Rank {
   public:
    Rank(Group& group, const ExchangeOptions& options) {
      std::vector<TensorSpec> model;
      for (size_t i = 0; i < kTensors; ++i)
        model.push_back({"w" + std::to_string(i), {kCount}, TensorKind::kLinear});
      values_.assign(kTensors, std::vector<float>(kCount));
      exchange_ = make_exchange(group, store_, model, options);
      fill();
    }

    // Gradients of both signs and many magnitudes, which a mean would wear down.
    void fill() {
      uint32_t state = 1;
      for (auto& tensor : values_)
        for (float& value : tensor) {
          state = state * 1664525u + 1013904223u;
          const float unit = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
          value = unit * unit * unit;
        }
    }

    void step() {
      for (size_t i = kTensors; i-- > 0;)
        exchange_->start(i, {.data = values_[i].data(), .count = kCount});
      exchange_->finish();
    }

   private:
    Store store_;
    std::vector<std::vector<float>> values_;
    std::unique_ptr<Exchange> exchange_;
  };

  std::barrier<> barrier_;
  std::atomic<bool> over_{false};
  std::unique_ptr<Group> group_;
  std::unique_ptr<Rank> first_;
  std::vector<std::thread> threads_;
};

void run(benchmark::State& state, int ranks, const ExchangeOptions& options) {
  Team team(ranks, options);
  bench::side_by_side(
      state, kTensors * kCount, [&] { team.prepare(); }, [&] { team.step(); });
}

void run(benchmark::State& state, int ranks, const char* codec, bool norms = false) {
  run(state, ranks, ExchangeOptions{.codec = codec, .norms = norms});
}

void exchange_fp32_1_rank(benchmark::State& state) { run(state, 1, "fp32"); }
void exchange_fp32_2_ranks(benchmark::State& state) { run(state, 2, "fp32"); }
void exchange_fp16_1_rank(benchmark::State& state) { run(state, 1, "fp16"); }
void exchange_fp16_2_ranks(benchmark::State& state) { run(state, 2, "fp16"); }
void exchange_adacomp_1_rank(benchmark::State& state) { run(state, 1, "adacomp"); }
void exchange_adacomp_1_rank_norms(benchmark::State& state) { run(state, 1, "adacomp", true); }
void exchange_adacomp_2_ranks(benchmark::State& state) { run(state, 2, "adacomp"); }
void exchange_int8_1_rank(benchmark::State& state) { run(state, 1, "int8"); }
void exchange_int8_2_ranks(benchmark::State& state) { run(state, 2, "int8"); }
void exchange_sidco_1_rank(benchmark::State& state) { run(state, 1, "sidco:density=0.001"); }
void exchange_sidco_2_ranks(benchmark::State& state) { run(state, 2, "sidco:density=0.001"); }

// The same codec with each grouping.
void run_grouping(benchmark::State& state, int ranks, Grouping grouping) {
  run(state, ranks,
      ExchangeOptions{.codec = "topk:density=0.01", .grouping = grouping, .norms = false});
}
void exchange_topk_tensor_1_rank(benchmark::State& state) {
  run_grouping(state, 1, Grouping::kTensor);
}
void exchange_topk_model_1_rank(benchmark::State& state) {
  run_grouping(state, 1, Grouping::kModel);
}
void exchange_topk_global_1_rank(benchmark::State& state) {
  run_grouping(state, 1, Grouping::kGlobal);
}
void exchange_topk_tensor_2_ranks(benchmark::State& state) {
  run_grouping(state, 2, Grouping::kTensor);
}
void exchange_topk_model_2_ranks(benchmark::State& state) {
  run_grouping(state, 2, Grouping::kModel);
}
void exchange_topk_global_2_ranks(benchmark::State& state) {
  run_grouping(state, 2, Grouping::kGlobal);
}

// exchange_topk_tensor_1_rank with SGD's momentum in the memory.
void exchange_topk_momentum_1_rank(benchmark::State& state) {
  run(state, 1,
      ExchangeOptions{.codec = "topk:density=0.01",
                      .feedback = "dgc:momentum=0.9",
                      .grouping = Grouping::kTensor,
                      .norms = false});
}

THINWIRE_BENCH(exchange_fp32_1_rank);
THINWIRE_BENCH(exchange_fp32_2_ranks);
THINWIRE_BENCH(exchange_fp16_1_rank);
THINWIRE_BENCH(exchange_fp16_2_ranks);
THINWIRE_BENCH(exchange_adacomp_1_rank);
THINWIRE_BENCH(exchange_adacomp_1_rank_norms);
THINWIRE_BENCH(exchange_adacomp_2_ranks);
THINWIRE_BENCH(exchange_int8_1_rank);
THINWIRE_BENCH(exchange_int8_2_ranks);
THINWIRE_BENCH(exchange_sidco_1_rank);
THINWIRE_BENCH(exchange_sidco_2_ranks);
THINWIRE_BENCH(exchange_topk_tensor_1_rank);
THINWIRE_BENCH(exchange_topk_model_1_rank);
THINWIRE_BENCH(exchange_topk_global_1_rank);
THINWIRE_BENCH(exchange_topk_tensor_2_ranks);
THINWIRE_BENCH(exchange_topk_model_2_ranks);
THINWIRE_BENCH(exchange_topk_global_2_ranks);
THINWIRE_BENCH(exchange_topk_momentum_1_rank);

}  // namespace
}  // namespace thinwire
