// Payloads of parts on a device, and the table of codecs that have a form there.
// SPDX-License-Identifier: Apache-2.0
#include "codec/device_codec.h"

#include <string>
#include <utility>

#include "codec/checked_add.h"
#include "core/named_row.h"

namespace thinwire {
namespace {

using device::DeviceWork;

class BlockDeviceEncoder final : public Encoder {
 public:
  BlockDeviceEncoder(SharedWork work, BlockKernels kernels, std::vector<Part> parts)
      : work_(std::move(work)), kernels_(std::move(kernels)), parts_(std::move(parts)) {}

  Encoded encode(const Signal& signal, const Call& call, std::span<std::byte> out,
                 std::span<float> rest) override {
    work_->begin();
    size_t size = 0;
    for (const Part& part : parts_) size += kernels_.size(part);
    auto* const bytes = work_->room<std::byte>(size);
    size_t at = 0;
    for (const Part& part : parts_) {
      void* const scratch =
          kernels_.scratch ? work_->room<std::byte>(kernels_.scratch(part)) : nullptr;
      kernels_.encode(work_->launcher(), part, call, signal.values.data() + part.begin, bytes + at,
                      rest.empty() ? nullptr : rest.data() + part.begin, scratch);
      at += kernels_.size(part);
    }
    work_->fetch(out.first(size), bytes);
    return {.size = size, .kept = signal.values.size()};
  }

 private:
  SharedWork work_;
  BlockKernels kernels_;
  std::vector<Part> parts_;
};

class BlockDeviceDecoder final : public DeviceDecoder {
 public:
  BlockDeviceDecoder(std::string name, SharedWork work, std::unique_ptr<const Decoder> decoder,
                     BlockKernels kernels, std::vector<Part> parts)
      : DeviceDecoder(std::move(work), std::move(decoder)),
        name_(std::move(name)),
        kernels_(std::move(kernels)),
        parts_(std::move(parts)) {}

 private:
  Status add(DeviceWork& work, std::span<const std::byte> payload, float weight,
             std::span<float> out) const override {
    size_t size = 0;
    for (const Part& part : parts_) size += kernels_.size(part);
    if (payload.size() != size)
      return Status::fail(ErrorCode::kBadLength,
                          name_ + ": payload length does not match the count");
    const auto* bytes = work.room<std::byte>(size);
    auto* const bad = work.room<uint32_t>(1);
    work.send(const_cast<std::byte*>(bytes), payload);
    device::clear(work, bad, 1);
    for (const Part& part : parts_) {
      kernels_.add(work.launcher(), part, bytes, weight, out.data() + part.begin, bad);
      bytes += kernels_.size(part);
    }
    if (work.fetch(bad) != 0)
      return Status::fail(ErrorCode::kCorrupt, name_ + ": scale, level or code out of range");
    return Status::ok();
  }

  std::string name_;
  BlockKernels kernels_;
  std::vector<Part> parts_;
};

class DeviceCodec final : public Codec {
 public:
  DeviceCodec(std::unique_ptr<Codec> codec,
              std::function<std::unique_ptr<Encoder>(const StreamSpec&)> make_encoder,
              std::function<std::unique_ptr<const Decoder>(const StreamSpec&)> make_decoder)
      : codec_(std::move(codec)),
        make_encoder_(std::move(make_encoder)),
        make_decoder_(std::move(make_decoder)) {}

  const CodecInfo& info() const noexcept override { return codec_->info(); }
  size_t max_encoded_size(const StreamSpec& stream) const override {
    return codec_->max_encoded_size(stream);
  }
  size_t target(const StreamSpec& stream) const override { return codec_->target(stream); }
  size_t max_kept(const StreamSpec& stream) const override { return codec_->max_kept(stream); }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& stream) const override {
    return make_encoder_(stream);
  }
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& stream) const override {
    return make_decoder_(stream);
  }

 private:
  std::unique_ptr<Codec> codec_;
  std::function<std::unique_ptr<Encoder>(const StreamSpec&)> make_encoder_;
  std::function<std::unique_ptr<const Decoder>(const StreamSpec&)> make_decoder_;
};

}  // namespace

Status DeviceDecoder::decode_add(std::span<const std::byte> payload, float weight,
                                 std::span<float> out) const {
  if (!keeps_finite(weight))
    return Status::fail(ErrorCode::kUnsupported, "codec: on a device no weight is beyond 1");
  work_->begin();
  return add(*work_, payload, weight, out);
}

Status DeviceDecoder::decode(std::span<const std::byte> payload, std::span<float> out) const {
  device::fill(*work_, out, 0.0f);
  return decode_add(payload, 1.0f, out);
}

std::unique_ptr<Codec> with_device_ends(
    std::unique_ptr<Codec> codec,
    std::function<std::unique_ptr<Encoder>(const StreamSpec&)> make_encoder,
    std::function<std::unique_ptr<const Decoder>(const StreamSpec&)> make_decoder) {
  return std::make_unique<DeviceCodec>(std::move(codec), std::move(make_encoder),
                                       std::move(make_decoder));
}

std::unique_ptr<Codec> make_block_device_codec(
    std::unique_ptr<Codec> codec, size_t block, SharedWork work,
    std::function<BlockKernels(const StreamSpec&)> kernels_of) {
  const Codec* const there = codec.get();  // as long as the result
  return with_device_ends(
      std::move(codec),
      [=](const StreamSpec& stream) {
        return std::make_unique<BlockDeviceEncoder>(work, kernels_of(stream),
                                                    parts_of(stream, block));
      },
      [=](const StreamSpec& stream) {
        return std::make_unique<BlockDeviceDecoder>(std::string(there->info().name), work,
                                                    there->make_decoder(stream), kernels_of(stream),
                                                    parts_of(stream, block));
      });
}

std::string device_codec_names() {
  std::string names;
  for (const CodecEntry* entry : list_codecs())
    if (entry->on_device != nullptr)
      names += (names.empty() ? "" : ", ") + std::string(entry->info.name);
  return names;
}

Result<NamedCodec> make_device_codec(std::string_view spec, SharedWork work) {
  auto named = find_named_row(list_codecs(), "codec", spec);
  if (!named) return named.status();
  const CodecEntry& entry = *named.value().row;
  std::unique_ptr<Codec> codec;
  if (entry.on_device != nullptr) codec = entry.on_device(named.value().options, std::move(work));
  if (codec == nullptr)
    return Status::fail(
        ErrorCode::kUnsupported,
        "codec '" + named.value().canonical() + "' has no form for a device's memory" +
            (entry.on_device != nullptr ? " with these options"
                                        : "; those with one: " + device_codec_names()));
  return NamedCodec{.codec = std::move(codec), .canonical = named.value().canonical()};
}

}  // namespace thinwire
