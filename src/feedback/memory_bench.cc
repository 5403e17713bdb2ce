// What memories add to a step: forming the signal, and keeping what was left.
// SPDX-License-Identifier: Apache-2.0
//
// A step's gradient and signal are read or written by codecs anyway; the pass here replaces the one
// that would form gradient + residual, whose budget is one stream.
#include <string>

#include "bench/side_by_side.h"
#include "core/aligned.h"
#include "core/random.h"
#include "thinwire/feedback.h"

namespace thinwire {
namespace {

AlignedVector<float>& gradient() {
  static AlignedVector<float> values = [] {
    AlignedVector<float> made(bench::kLarge);
    for (size_t i = 0; i < made.size(); ++i) made[i] = random_unit({.seed = 1}, i) - 0.5f;
    return made;
  }();
  return values;
}

std::unique_ptr<Feedback> make(const std::string& spec) {
  return make_feedback(spec, single_tensor({.name = "w", .shape = {bench::kLarge}})).value();
}

void prepare(benchmark::State& state, const std::string& spec, const bench::Budget& budget) {
  const auto memory = make(spec);
  bench::side_by_side(
      state, bench::kLarge, nullptr,
      [&] {
        benchmark::DoNotOptimize(memory->prepare(gradient(), {}).moments);
        memory->rollback();
      },
      budget);
}

void sent(benchmark::State& state, const std::string& spec) {
  const auto memory = make(spec);
  bench::side_by_side(
      state, bench::kLarge, [&] { memory->prepare(gradient(), {}); },
      [&] { memory->sent(gradient(), 0, bench::kLarge); });
}

double one_stream(const bench::Baseline& base) { return base.stream; }

void residual_prepare(benchmark::State& state) { prepare(state, "residual", one_stream); }
void residual_weighted_prepare(benchmark::State& state) {
  prepare(state, "residual:beta=0.9", one_stream);
}
void lowpass_prepare(benchmark::State& state) { prepare(state, "lowpass", one_stream); }
void lowpass_sent(benchmark::State& state) { sent(state, "lowpass"); }
void ef21_prepare(benchmark::State& state) { prepare(state, "ef21", one_stream); }
void ef21_sent(benchmark::State& state) { sent(state, "ef21"); }
// Three reads and two writes, where a stream is two and one.
void dgc_prepare(benchmark::State& state) {
  prepare(state, "dgc", [](const bench::Baseline& base) { return 5.0 / 3 * base.stream; });
}
void dgc_sent(benchmark::State& state) { sent(state, "dgc"); }
// The same where the codec kept one value in so many, and says which.
void sent_at(benchmark::State& state, const std::string& spec) {
  const auto memory = make(spec);
  const auto apart = static_cast<size_t>(state.range(0));
  std::vector<uint32_t> positions;
  for (size_t i = 0; i < bench::kLarge / apart; ++i)
    positions.push_back(static_cast<uint32_t>(i * apart + random_word({.seed = 2}, i) % apart));
  bench::side_by_side(
      state, bench::kLarge,
      [&] {
        memory->prepare(gradient(), {});
        for (const uint32_t position : positions) memory->rest()[position] = 0;
      },
      [&] { memory->sent_at(gradient(), positions); });
}
void dgc_sent_at(benchmark::State& state) { sent_at(state, "dgc"); }
// One write more, of the signal.
void ahead_prepare(benchmark::State& state) {
  prepare(state, "ahead", [](const bench::Baseline& base) { return 2 * base.stream; });
}
void ahead_sent(benchmark::State& state) { sent(state, "ahead"); }
void ahead_sent_at(benchmark::State& state) { sent_at(state, "ahead"); }
// A whole step with a lossless codec: all that the memory does.
void ahead_lossless(benchmark::State& state) {
  const auto memory = make("ahead");
  bench::side_by_side(
      state, bench::kLarge, nullptr,
      [&] {
        benchmark::DoNotOptimize(memory->prepare(gradient(), {.lossless = true}).moments);
        memory->sent(gradient(), 0, bench::kLarge);
        memory->commit();
      },
      one_stream);
}
void ef21_receive(benchmark::State& state) {
  const auto memory = make("ef21");
  AlignedVector<float> mean(bench::kLarge, 1e-3f);
  memory->prepare(gradient(), {});
  bench::side_by_side(state, bench::kLarge, nullptr, [&] { memory->receive(mean); });
}

// A copy, an addition from bytes and the moments, chunk by chunk in cache.
void loco_prepare(benchmark::State& state) {
  prepare(state, "loco", [](const bench::Baseline& base) { return 2 * base.stream; });
}
void loco_commit(benchmark::State& state) {
  const auto memory = make("loco");
  bench::side_by_side(
      state, bench::kLarge, [&] { memory->prepare(gradient(), {}); }, [&] { memory->commit(); });
}
void efmixed_prepare(benchmark::State& state) { prepare(state, "efmixed:density=0.01", nullptr); }

THINWIRE_BENCH(residual_prepare);
THINWIRE_BENCH(residual_weighted_prepare);
THINWIRE_BENCH(lowpass_prepare);
THINWIRE_BENCH(lowpass_sent);
THINWIRE_BENCH(dgc_prepare);
THINWIRE_BENCH(dgc_sent);
THINWIRE_BENCH(dgc_sent_at)->Arg(16)->Arg(100)->Arg(1000);
THINWIRE_BENCH(ahead_prepare);
THINWIRE_BENCH(ahead_sent);
THINWIRE_BENCH(ahead_sent_at)->Arg(16)->Arg(100)->Arg(1000);
THINWIRE_BENCH(ahead_lossless);
THINWIRE_BENCH(ef21_prepare);
THINWIRE_BENCH(ef21_sent);
THINWIRE_BENCH(ef21_receive);
THINWIRE_BENCH(loco_prepare);
THINWIRE_BENCH(loco_commit);
THINWIRE_BENCH(efmixed_prepare);

}  // namespace
}  // namespace thinwire
