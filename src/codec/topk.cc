// topk: the k largest magnitudes, exactly; k = density x count, rounded, at least 1. The yardstick
// of all sparsifiers. Biased: do not use it without feedback.
//
// With `block` the same for every block of so many values of the stream (chunked top-k): layers of
// different size of gradient send alike, and what a block sends depends on nothing else.
//
// Equal magnitudes are taken from the lowest position up, zeros never, so that exactly k values are
// kept unless fewer are not zero.
//
// Payload: as in sparse_payload.h.
//
// Encoding reads the values once and what it keeps twice more (top_selector.h,
// block_top_selector.h), and writes `rest` only where something was kept if that is `values`
// itself.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "codec/block_top_selector.h"
#include "codec/builtin.h"
#include "codec/device_sparse.h"
#include "codec/sparse_codec.h"
#include "kernel/top_selector.h"

namespace thinwire {
namespace {

const CodecInfo kInfo{.name = "topk",
                      .id = 4,
                      .summary = "the largest magnitudes, exactly",
                      .paper = "Aji and Heafield, EMNLP 2017",
                      .sparse = true,
                      .global_threshold = true};

// Blocks that each send the same share have a threshold each.
CodecInfo info_with(size_t block) {
  CodecInfo info = kInfo;
  info.global_threshold = block == 0;
  return info;
}

template <class Selector>
class TopkEncoder final : public Encoder {
 public:
  TopkEncoder(size_t target, ValueFormat format, Selector selector)
      : target_(target), format_(format), selector_(std::move(selector)) {}

  Encoded encode(const Signal& signal, const Call& /*call*/, std::span<std::byte> out,
                 std::span<float> rest) override {
    const auto values = signal.values;
    if (!rest.empty() && rest.data() != values.data())
      std::copy(values.begin(), values.end(), rest.begin());
    const auto positions = selector_.select(values);
    return {.size = write_sparse_at(positions, values, format_, out, rest),
            .kept = positions.size(),
            .target = target_,
            .positions = positions};
  }

 private:
  size_t target_;
  ValueFormat format_;
  Selector selector_;
};

class TopkCodec final : public SparseCodec {
 public:
  explicit TopkCodec(const Options& options)
      : SparseCodec(info_with(static_cast<size_t>(options.integer("block"))),
                    value_format(options)),
        density_(options.number("density")),
        block_(static_cast<size_t>(options.integer("block"))) {}

 private:
  size_t wanted(size_t count) const noexcept override { return most_kept(count); }
  size_t most_kept(size_t count) const noexcept override {
    if (block_ == 0) return kept_target(density_, count);
    return count / block_ * kept_target(density_, block_) + kept_target(density_, count % block_);
  }
  std::unique_ptr<Encoder> encoder_of(size_t count) const override {
    const size_t target = most_kept(count);
    if (block_ == 0)
      return std::make_unique<TopkEncoder<kernel::TopSelector>>(target, format(),
                                                                kernel::TopSelector(count, target));
    return std::make_unique<TopkEncoder<BlockTopSelector>>(
        target, format(), BlockTopSelector(count, block_, density_));
  }

  double density_;
  size_t block_;  // 0: none
};

class TopkDeviceEncoder final : public DeviceSparseEncoder {
 public:
  TopkDeviceEncoder(SharedWork work, ValueFormat format, size_t count, size_t target)
      : DeviceSparseEncoder(std::move(work), format, count, target), target_(target) {}

 private:
  Keeping keeping(const Signal& /*signal*/, const Call& /*call*/) override {
    return {.threshold = 0, .most = target_, .keep = target_};
  }

  size_t target_;
};

// The largest of blocks have no form on a device.
std::unique_ptr<Codec> make_on_device(const Options& options, const SharedWork& work) {
  if (options.integer("block") != 0) return nullptr;
  const double density = options.number("density");
  const ValueFormat format = value_format(options);
  return make_sparse_device_codec(std::make_unique<TopkCodec>(options), work, [=](size_t count) {
    return std::make_unique<TopkDeviceEncoder>(work, format, count, kept_target(density, count));
  });
}

}  // namespace

const CodecEntry& topk_entry() {
  static const CodecEntry entry{
      .info = kInfo,
      .options = {density_option(),
                  {.name = "block",
                   .type = OptionType::kInteger,
                   .fallback = "0",
                   .min = 0,
                   .max = 1e9,
                   .unit = "values",
                   .help = "the largest of each block of so many; 0: of the whole stream"},
                  value_format_option()},
      .make = [](const Options& options) { return std::make_unique<TopkCodec>(options); },
      .on_device = make_on_device};
  return entry;
}

}  // namespace thinwire
