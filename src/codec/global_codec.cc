// Encodes by a threshold that is given, and leaves everything else to the codec itself.
// SPDX-License-Identifier: Apache-2.0
#include "codec/global_codec.h"

#include <algorithm>
#include <utility>

#include "codec/exceedance_list.h"
#include "codec/sparse_codec.h"

namespace thinwire {
namespace {

class GlobalEncoder final : public Encoder {
 public:
  GlobalEncoder(const Codec& codec, const StreamSpec& stream)
      : own_(codec.make_encoder(stream)),
        format_(codec.info().values),
        target_(codec.target(stream)) {}

  Encoded encode(const Signal& signal, const Call& call, std::span<std::byte> out,
                 std::span<float> rest) override {
    if (!call.quota) return own_->encode(signal, call, out, rest);
    const auto values = signal.values;
    if (call.quota->most > 0) {
      list_.select(values, call.quota->threshold, call.quota->most, rest);
    } else {
      list_.select({}, 0.0f, 0, {});
      list_.leave(values, rest);
    }
    const size_t kept = list_.size();
    return {.size = write_list(list_, format_, out, rest),
            .kept = kept,
            .target = target_,
            .positions = list_.positions()};
  }

  void commit() override { own_->commit(); }
  void rollback() override { own_->rollback(); }
  StateArrays save() const override { return own_->save(); }
  Status load(const StateArrays& arrays) override { return own_->load(arrays); }

 private:
  std::unique_ptr<Encoder> own_;
  ValueFormat format_;
  size_t target_;
  ExceedanceList list_;
};

class GlobalCodec final : public Codec {
 public:
  explicit GlobalCodec(std::shared_ptr<const Codec> codec) : codec_(std::move(codec)) {}

  const CodecInfo& info() const noexcept override { return codec_->info(); }
  size_t max_encoded_size(const StreamSpec& stream) const override {
    const size_t count = stream.count();
    return std::max(codec_->max_encoded_size(stream), max_sparse_size(count, count, info().values));
  }
  size_t target(const StreamSpec& stream) const override { return codec_->target(stream); }
  size_t max_kept(const StreamSpec& stream) const override { return stream.count(); }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& stream) const override {
    return std::make_unique<GlobalEncoder>(*codec_, stream);
  }
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& stream) const override {
    return codec_->make_decoder(stream);
  }

 private:
  std::shared_ptr<const Codec> codec_;
};

}  // namespace

std::shared_ptr<const Codec> with_global_threshold(std::shared_ptr<const Codec> codec) {
  if (!codec->info().global_threshold) return codec;
  return std::make_shared<GlobalCodec>(std::move(codec));
}

}  // namespace thinwire
