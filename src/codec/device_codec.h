// Codecs for values in a device's memory: what they share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/block_option.h"
#include "device/device_work.h"
#include "device/launcher.h"
#include "thinwire/codec.h"

namespace thinwire {

// The codec that `spec` names, whose encoders are given values, fresh and rest in the device's
// memory, and whose decoders add to sums there. Payloads are in the processor's memory, and they
// are those of make_codec(spec), byte for byte; so is what encoders save. It is used by the thread
// that uses `work`. Fails with kUnsupported, and names the codecs that have such a form, if this
// one has none with these options.
Result<NamedCodec> make_device_codec(std::string_view spec, SharedWork work);

// "adacomp, bf16, ...": the codecs of which make_device_codec makes some.
std::string device_codec_names();

// The kernels of a codec that sends part after part, each of a size that its count alone decides.
struct BlockKernels {
  std::function<size_t(const Part&)> size;          // bytes of the payload
  std::function<size_t(const Part&)> scratch = {};  // bytes, if any
  // The part lies at `values`; `rest` may be null.
  std::function<void(device::Launcher&, const Part&, const Call&, const float* values,
                     std::byte* bytes, float* rest, void* scratch)>
      encode;
  std::function<void(device::Launcher&, const Part&, const std::byte* bytes, float weight,
                     float* out, uint32_t* bad)>
      add;
};

// `codec` with such kernels, for streams cut into parts of `block` values, or into tensors where
// that is 0.
std::unique_ptr<Codec> make_block_device_codec(
    std::unique_ptr<Codec> codec, size_t block, SharedWork work,
    std::function<BlockKernels(const StreamSpec&)> kernels_of);

// `codec` with other encoders and decoders.
std::unique_ptr<Codec> with_device_ends(
    std::unique_ptr<Codec> codec,
    std::function<std::unique_ptr<Encoder>(const StreamSpec&)> make_encoder,
    std::function<std::unique_ptr<const Decoder>(const StreamSpec&)> make_decoder);

// The base of decoders: sums lie in the device's memory.
class DeviceDecoder : public Decoder {
 public:
  // `decoder` is the processor's, for what does not touch sums.
  DeviceDecoder(SharedWork work, std::unique_ptr<const Decoder> decoder)
      : work_(std::move(work)), decoder_(std::move(decoder)) {}

  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const final;
  Status decode(std::span<const std::byte> payload, std::span<float> out) const final;
  Status visit(std::span<const std::byte> payload, const KeptVisitor& visitor) const final {
    return decoder_->visit(payload, visitor);
  }

 private:
  // With a weight that keeps finite values finite.
  virtual Status add(device::DeviceWork& work, std::span<const std::byte> payload, float weight,
                     std::span<float> out) const = 0;

  SharedWork work_;
  std::unique_ptr<const Decoder> decoder_;
};

}  // namespace thinwire
