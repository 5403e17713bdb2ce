// torch-topk as the usual tensor calls: abs, topk, gather, and index_fill for the remainder.
// SPDX-License-Identifier: Apache-2.0
#include "torch_topk.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "thinwire/codec.h"

namespace thinwire::lab {
namespace {

constexpr CodecInfo kInfo{.name = "torch-topk",
                          .id = 200,
                          .summary = "top-k by at::topk; for comparisons in the laboratory",
                          .grouping = Grouping::kModel};
constexpr size_t kEntry = sizeof(uint32_t) + sizeof(float);

size_t kept_of(size_t count, double density) {
  return static_cast<size_t>(std::llround(density * static_cast<double>(count)));
}

class TorchEncoder final : public Encoder {
 public:
  explicit TorchEncoder(double density) : density_(density) {}

  Encoded encode(const Signal& signal, const Call& /*call*/, std::span<std::byte> out,
                 std::span<float> rest) override {
    const size_t k = kept_of(signal.values.size(), density_);
    const at::Tensor values =
        at::from_blob(const_cast<float*>(signal.values.data()),
                      {static_cast<int64_t>(signal.values.size())}, at::kFloat);
    const at::Tensor positions = std::get<1>(values.abs().topk(static_cast<int64_t>(k)));
    const at::Tensor kept = values.index_select(0, positions);
    const at::Tensor narrow = positions.to(at::kInt);
    std::memcpy(out.data(), narrow.data_ptr(), k * sizeof(uint32_t));
    std::memcpy(out.data() + k * sizeof(uint32_t), kept.data_ptr(), k * sizeof(float));
    if (!rest.empty()) {
      if (rest.data() != signal.values.data())
        std::copy(signal.values.begin(), signal.values.end(), rest.begin());
      at::from_blob(rest.data(), {static_cast<int64_t>(rest.size())}, at::kFloat)
          .index_fill_(0, positions, 0);
    }
    return {.size = k * kEntry, .kept = k, .target = k};
  }

 private:
  double density_;
};

class TorchDecoder final : public Decoder {
 public:
  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const override {
    const size_t k = payload.size() / kEntry;
    if (payload.size() % kEntry != 0)
      return Status::fail(ErrorCode::kBadLength, "torch-topk: not a whole number of entries");
    for (size_t i = 0; i < k; ++i) {
      uint32_t position = 0;
      float value = 0;
      std::memcpy(&position, payload.data() + i * sizeof(position), sizeof(position));
      std::memcpy(&value, payload.data() + k * sizeof(position) + i * sizeof(value), sizeof(value));
      if (position >= out.size() || !std::isfinite(value))
        return Status::fail(ErrorCode::kCorrupt, "torch-topk: position or value out of range");
      out[position] += weight * value;
    }
    return Status::ok();
  }
};

class TorchTopk final : public Codec {
 public:
  explicit TorchTopk(double density) : density_(density) {}

  const CodecInfo& info() const noexcept override { return kInfo; }
  size_t max_encoded_size(const StreamSpec& stream) const override {
    return kept_of(stream.count(), density_) * kEntry;
  }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& /*stream*/) const override {
    return std::make_unique<TorchEncoder>(density_);
  }
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& /*stream*/) const override {
    return std::make_unique<TorchDecoder>();
  }

 private:
  double density_;
};

}  // namespace

void register_torch_topk() {
  register_codec({.info = kInfo,
                  .options = {{.name = "density",
                               .type = OptionType::kNumber,
                               .fallback = "0.01",
                               .min = 0,
                               .max = 1,
                               .help = "share of the values that is kept"}},
                  .make = [](const Options& options) {
                    return std::make_unique<TorchTopk>(options.number("density"));
                  }});
}

}  // namespace thinwire::lab
