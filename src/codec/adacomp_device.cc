// AdaComp on a device: as adacomp.cc, with the kernels of device/bin_kernels.h.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "codec/adacomp_parts.h"
#include "core/bytes.h"
#include "core/check.h"
#include "device/bin_kernels.h"

namespace thinwire {
namespace {

using device::DeviceWork;

class AdaCompDeviceEncoder final : public Encoder {
 public:
  AdaCompDeviceEncoder(SharedWork work, BinParts parts, float factor)
      : work_(std::move(work)), parts_(std::move(parts)), factor_(factor) {}

  Encoded encode(const Signal& signal, const Call& /*call*/, std::span<std::byte> out,
                 std::span<float> rest) override {
    const auto values = signal.values;
    const auto fresh = signal.fresh.empty() ? values : signal.fresh;
    size_t count = 0;
    for (const BinPart& part : parts_) count += part.count;
    THINWIRE_CHECK(values.size() == count && fresh.size() == count,
                   "adacomp: values or fresh are not as many as the stream has");
    work_->begin();
    Encoded encoded;
    size_t begin = 0;
    for (const BinPart& part : parts_) {
      if (part.count == 0) continue;
      const size_t size =
          encode_part(values.data() + begin, fresh.data() + begin, part, out.subspan(encoded.size),
                      rest.empty() ? nullptr : rest.data() + begin, encoded.kept);
      encoded.size += size;
      begin += part.count;
    }
    work_->await();  // of what is left
    return encoded;
  }

 private:
  size_t encode_part(const float* values, const float* fresh, const BinPart& part,
                     std::span<std::byte> out, float* rest, size_t& kept) {
    auto& on = work_->launcher();
    auto* const choices = work_->room<device::BinChoice>(part.bins());
    auto* const offsets = work_->room<uint64_t>(device::sum_room(part.bins()));
    auto* const totals = work_->room<device::BinTotal>(device::bin_totals(part.bins()));
    device::choose_bins(on, values, fresh, part.count, factor_, part.bin, choices, offsets, totals);
    const device::BinTotal total = work_->fetch(totals);
    const float scale = bin_scale(total.max_sum, part);
    ByteWriter(out).put(scale);
    if (scale == 0) {  // all zero, or too small for a mean: nothing is sent
      if (rest != nullptr && rest != values)
        device::copy(*work_, {values, part.count}, {rest, part.count});
      return sizeof scale;
    }
    const size_t size = total.codes * kernel::bin_code_size(part.bin);
    auto* const bytes = work_->room<std::byte>(size);
    device::write_bins(on, values, fresh, part.count, factor_, part.bin, choices, offsets, scale,
                       bytes, rest);
    work_->fetch(out.subspan(sizeof scale, size), bytes);
    kept += total.kept;
    return sizeof scale + size;
  }

  SharedWork work_;
  BinParts parts_;
  float factor_;
};

class AdaCompDeviceDecoder final : public DeviceDecoder {
 public:
  AdaCompDeviceDecoder(SharedWork work, std::unique_ptr<const Decoder> decoder, BinParts parts)
      : DeviceDecoder(std::move(work), std::move(decoder)), parts_(std::move(parts)) {}

 private:
  // Payloads that end early, and tensors of zeros, leave the copy on its way.
  Status add(DeviceWork& work, std::span<const std::byte> payload, float weight,
             std::span<float> out) const override {
    const Status status = add_parts(work, payload, weight, out);
    work.await();
    return status;
  }

  Status add_parts(DeviceWork& work, std::span<const std::byte> payload, float weight,
                   std::span<float> out) const {
    struct Read {
      uint64_t used;
      uint32_t bad, unused;
    };
    auto* const bytes = work.room<std::byte>(payload.size());
    work.send(bytes, payload);
    size_t at = 0, begin = 0;
    for (const BinPart& part : parts_) {
      if (part.count == 0) continue;
      float scale = 0;
      if (payload.size() - at < sizeof scale)
        return Status::fail(ErrorCode::kBadLength, "adacomp: no scale");
      std::memcpy(&scale, payload.data() + at, sizeof scale);
      if (!std::isfinite(scale) || std::signbit(scale))
        return Status::fail(ErrorCode::kCorrupt, "adacomp: scale is negative or not finite");
      at += sizeof scale;
      if (scale > 0) {
        const size_t code_size = kernel::bin_code_size(part.bin);
        const size_t size = std::min(payload.size() - at, part.max_code_size());
        auto* const read = work.room<Read>(1);
        device::clear(work, &read->bad, 2);
        device::clear(work, reinterpret_cast<uint32_t*>(&read->used), 2);
        device::add_bins(work.launcher(), bytes + at, size, part.bin, weight * scale,
                         work.room<uint64_t>(device::code_room(size / code_size)),
                         out.data() + begin, part.count, &read->used, &read->bad);
        const Read result = work.fetch(read);
        if (result.bad != 0 || result.used == 0)
          return Status::fail(ErrorCode::kCorrupt, "adacomp: codes break a rule");
        at += result.used * code_size;
      }
      begin += part.count;
    }
    if (at != payload.size())
      return Status::fail(ErrorCode::kBadLength, "adacomp: bytes after the last bin");
    return Status::ok();
  }

  BinParts parts_;
};

}  // namespace

std::unique_ptr<Codec> make_adacomp_device_codec(
    std::unique_ptr<Codec> codec, SharedWork work, float factor,
    std::function<BinParts(const StreamSpec&)> parts_of) {
  const Codec* const there = codec.get();  // as long as the result
  return with_device_ends(
      std::move(codec),
      [=](const StreamSpec& stream) {
        return std::make_unique<AdaCompDeviceEncoder>(work, parts_of(stream), factor);
      },
      [=](const StreamSpec& stream) {
        return std::make_unique<AdaCompDeviceDecoder>(work, there->make_decoder(stream),
                                                      parts_of(stream));
      });
}

}  // namespace thinwire
