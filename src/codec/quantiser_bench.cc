// Every quantiser on 25 M Gaussian values: encoding, encoding in place with the remainder,
// decoding.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bench/side_by_side.h"
#include "core/aligned.h"
#include "core/random.h"
#include "thinwire/codec.h"

namespace thinwire {
namespace {

using bench::Baseline;
using bench::Budget;
using bench::kLarge;

StreamSpec stream() {
  return single_tensor({.name = "w", .shape = {kLarge}, .kind = TensorKind::kLinear});
}

// A million normal values, over and over.
const AlignedVector<float>& normal_values() {
  static const AlignedVector<float> values = [] {
    constexpr size_t kTile = 1'000'000;
    AlignedVector<float> made(kLarge);
    for (size_t i = 0; i < kTile; ++i) made[i] = random_normal({.seed = 1}, i);
    for (size_t at = kTile; at < kLarge; at += kTile)
      std::copy_n(made.begin(), kTile, made.begin() + static_cast<ptrdiff_t>(at));
    return made;
  }();
  return values;
}

struct Subject {
  explicit Subject(const std::string& spec)
      : codec(std::move(make_codec(spec).value().codec)),
        encoder(codec->make_encoder(stream())),
        decoder(codec->make_decoder(stream())),
        payload(codec->max_encoded_size(stream())) {}

  void encode(std::span<const float> values, std::span<float> rest) {
    size = encoder->encode({.values = values}, {.step = ++step}, payload, rest).size;
  }

  std::unique_ptr<const Codec> codec;
  std::unique_ptr<Encoder> encoder;
  std::unique_ptr<const Decoder> decoder;
  std::vector<std::byte> payload;
  uint64_t step = 0;
  size_t size = 0;
};

void report(benchmark::State& state, const Subject& subject) {
  state.counters["bits"] = 8.0 * static_cast<double>(subject.size) / kLarge;
}

void encode(benchmark::State& state, const std::string& spec, const Budget& budget) {
  Subject subject(spec);
  bench::side_by_side(
      state, kLarge, nullptr, [&] { subject.encode(normal_values(), {}); }, budget);
  report(state, subject);
}

void encode_in_place(benchmark::State& state, const std::string& spec, const Budget& budget) {
  Subject subject(spec);
  AlignedVector<float> values(kLarge);
  bench::side_by_side(
      state, kLarge, [&] { values = normal_values(); }, [&] { subject.encode(values, values); },
      budget);
  report(state, subject);
}

void decode_add(benchmark::State& state, const std::string& spec, const Budget& budget) {
  Subject subject(spec);
  subject.encode(normal_values(), {});
  AlignedVector<float> out(kLarge);
  bench::side_by_side(
      state, kLarge, nullptr,
      [&] {
        const auto payload = std::span(subject.payload).first(subject.size);
        if (!subject.decoder->decode_add(payload, 0.5f, out)) state.SkipWithError("refused");
      },
      budget);
  report(state, subject);
}

void enroll(const std::string& spec, bool budgeted) {
  const auto add = [&](const char* what, auto function, const Budget& budget) {
    benchmark::RegisterBenchmark(
        (spec + "/" + what).c_str(),
        [=](benchmark::State& state) { function(state, spec, budgeted ? budget : nullptr); })
        ->UseManualTime()
        ->Iterations(21)
        ->Unit(benchmark::kMillisecond);
  };
  const Budget scans = [](const Baseline& machine) { return 1.8 * machine.scan; };
  const Budget stream_time = [](const Baseline& machine) { return machine.stream; };
  add("encode", encode, scans);
  add("encode_in_place", encode_in_place, stream_time);
  add("decode_add", decode_add, stream_time);
}

// Design budgets hold for scaled blocks that draw nothing. The others show what a statistic over a
// whole tensor (one more read of memory), random bits (0.4 ns a value) and Elias strings cost.
const bool kEnrolled = [] {
  for (const char* spec : {"sign", "int8", "int4"}) enroll(spec, true);
  for (const char* spec :
       {"onebit", "sign:block=tensor", "uniform", "uniform:rounding=random", "acsgd", "qsgd",
        "qsgd:norm=l2,levels=1,coding=elias", "terngrad", "natural"})
    enroll(spec, false);
  return true;
}();

}  // namespace
}  // namespace thinwire
