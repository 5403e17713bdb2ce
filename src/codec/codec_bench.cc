// Benchmark of every codec of the registry with its defaults: speed, size and error.
//
// One message of 25 M values of a Laplace law (a matrix of 5000 x 5000), from memory: encoding
// without a remainder, and decode_add. Counters besides those of side_by_side, whose times are
// those of both together: encode_gb_s and decode_gb_s (4 bytes a value), bits (of payload a value),
// ratio (to fp32), relative_error (l2 norm of what the payload loses over that of the values).
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "codec/testing/sparsifier_bench.h"
#include "kernel/vector_moments.h"

namespace thinwire {
namespace {

double relative_error(std::span<const float> values, std::span<const float> decoded) {
  AlignedVector<float> lost(values.begin(), values.end());
  for (size_t i = 0; i < lost.size(); ++i) lost[i] -= decoded[i];
  return std::sqrt(kernel::moments(lost).square_sum / kernel::moments(values).square_sum);
}

void both_ways(benchmark::State& state, std::string_view name) {
  constexpr size_t kSide = 5000;
  constexpr size_t kCount = kSide * kSide;
  const auto codec = make_codec(name).value().codec;
  const StreamSpec stream =
      single_tensor({.name = "w", .shape = {kSide, kSide}, .kind = TensorKind::kLinear});
  const auto encoder = codec->make_encoder(stream);
  const auto decoder = codec->make_decoder(stream);
  const auto values = bench::laplace_gradient(kCount);
  std::vector<std::byte> out(codec->max_encoded_size(stream));
  AlignedVector<float> decoded(kCount);
  size_t size = 0;
  Call call;
  std::vector<double> encode_times, decode_times;
  const auto encode = [&] {
    ++call.step;
    size = encoder->encode({.values = values}, call, out, {}).size;
    encoder->commit();
  };
  const auto decode = [&] {
    if (!decoder->decode_add(std::span(out).first(size), 1.0f, decoded))
      state.SkipWithError("refused");
  };
  for (int i = 0; i < 5; ++i) encode();  // buffers grow, thresholds and factors settle
  bench::side_by_side(state, kCount, nullptr, [&] {
    encode_times.push_back(bench::seconds_of(encode));
    decode_times.push_back(bench::seconds_of(decode));
  });
  std::fill(decoded.begin(), decoded.end(), 0.0f);
  decode();
  const double bytes = 4.0 * kCount;
  state.counters["encode_gb_s"] = 1e-9 * bytes / bench::median(encode_times);
  state.counters["decode_gb_s"] = 1e-9 * bytes / bench::median(decode_times);
  state.counters["bits"] = 8.0 * static_cast<double>(size) / kCount;
  state.counters["ratio"] = bytes / static_cast<double>(size);
  state.counters["relative_error"] = relative_error(values, decoded);
}

const bool kEnrolled = [] {
  for (const CodecEntry* entry : list_codecs()) {
    const std::string name(entry->info.name);
    benchmark::RegisterBenchmark(("codec/" + name).c_str(),
                                 [=](benchmark::State& state) { both_ways(state, name); })
        ->UseManualTime()
        ->Iterations(11)
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
}  // namespace thinwire
