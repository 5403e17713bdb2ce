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
#include <cmath>

#include "codec/builtin.h"
#include "codec/sparse_payload.h"
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

class TopkDecoder final : public Decoder {
 public:
  explicit TopkDecoder(ValueFormat format) : format_(format) {}

  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const override {
    return add_sparse(payload, format_, weight, out);
  }

 private:
  ValueFormat format_;
};

class TopkCodec final : public Codec {
 public:
  TopkCodec(double density, ValueFormat format) : density_(density), format_(format) {}

  const CodecInfo& info() const noexcept override { return kInfo; }
  size_t max_encoded_size(const StreamSpec& stream) const override {
    return max_sparse_size(stream.count(), target(stream), format_);
  }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& stream) const override {
    require_sparse_stream(kInfo.name, stream);
    return std::make_unique<TopkEncoder>(stream.count(), target(stream), format_);
  }
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& stream) const override {
    require_sparse_stream(kInfo.name, stream);
    return std::make_unique<TopkDecoder>(format_);
  }

 private:
  size_t target(const StreamSpec& stream) const {
    const size_t count = stream.count();
    const auto target = static_cast<size_t>(std::llround(density_ * static_cast<double>(count)));
    return std::clamp(target, std::min<size_t>(count, 1), count);
  }

  double density_;
  ValueFormat format_;
};

}  // namespace

const CodecEntry& topk_entry() {
  static const CodecEntry entry{.info = kInfo,
                                .options = {{.name = "density",
                                             .type = OptionType::kNumber,
                                             .fallback = "0.01",
                                             .min = 1e-6,
                                             .max = 1,
                                             .unit = "fraction",
                                             .help = "values kept"},
                                            value_format_option()},
                                .make = [](const Options& options) -> std::unique_ptr<Codec> {
                                  return std::make_unique<TopkCodec>(options.number("density"),
                                                                     value_format(options));
                                }};
  return entry;
}

}  // namespace thinwire
