// topk: the k largest magnitudes, exactly; k = density x count, rounded, at least 1. The yardstick
// of all sparsifiers. Biased: do not use it without feedback.
//
// Equal magnitudes are taken from the lowest position up, zeros never, so that exactly k values are
// kept unless fewer are not zero.
//
// Payload: as in sparse_payload.h.
//
// Encoding reads the values once and what it keeps twice more (top_selector.h), and writes `rest`
// only where something was kept if that is `values` itself.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "codec/builtin.h"
#include "codec/sparse_codec.h"
#include "codec/top_selector.h"

namespace thinwire {
namespace {

const CodecInfo kInfo{.name = "topk",
                      .id = 4,
                      .summary = "the largest magnitudes, exactly",
                      .paper = "Aji and Heafield, EMNLP 2017"};

class TopkEncoder final : public Encoder {
 public:
  TopkEncoder(size_t count, size_t target, ValueFormat format)
      : target_(target), format_(format), selector_(count, target) {}

  Encoded encode(const Signal& signal, const Call& /*call*/, std::span<std::byte> out,
                 std::span<float> rest) override {
    const auto values = signal.values;
    if (!rest.empty() && rest.data() != values.data())
      std::copy(values.begin(), values.end(), rest.begin());
    const auto positions = selector_.select(values);
    return {.size = write_sparse_at(positions, values, format_, out, rest),
            .kept = positions.size(),
            .target = target_};
  }

 private:
  size_t target_;
  ValueFormat format_;
  TopSelector selector_;
};

class TopkCodec final : public SparseCodec {
 public:
  explicit TopkCodec(const Options& options)
      : SparseCodec(kInfo, value_format(options)), density_(options.number("density")) {}

 private:
  size_t most_kept(size_t count) const noexcept override { return kept_target(density_, count); }
  std::unique_ptr<Encoder> encoder_of(size_t count) const override {
    return std::make_unique<TopkEncoder>(count, kept_target(density_, count), format());
  }

  double density_;
};

}  // namespace

const CodecEntry& topk_entry() {
  static const CodecEntry entry{
      .info = kInfo,
      .options = {density_option(), value_format_option()},
      .make = [](const Options& options) { return std::make_unique<TopkCodec>(options); }};
  return entry;
}

}  // namespace thinwire
