// Sparse payloads made on a device; those received are checked by the processor, and unpacked and
// added there.
// SPDX-License-Identifier: Apache-2.0
#include "codec/device_sparse.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "codec/sparse_payload.h"
#include "core/bytes.h"
#include "core/check.h"
#include "device/coded_values.h"
#include "device/position_kernels.h"
#include "device/selection_kernels.h"
#include "kernel/position_code.h"

namespace thinwire {
namespace {

using device::DeviceWork;

// What was selected, in the device's memory.
struct Selected {
  size_t size = 0;
  uint32_t* positions = nullptr;
  float* values = nullptr;
};

Selected room_for(DeviceWork& work, size_t size) {
  return {size, work.room<uint32_t>(size), work.room<float>(size)};
}

device::KthState kth_of(DeviceWork& work, std::span<const float> values, size_t k) {
  auto* const bins = work.room<uint32_t>(device::kKthBins);
  auto* const kth = work.room<device::KthState>(1);
  device::find_kth(work.launcher(), values.data(), values.size(), k, bins, kth);
  return work.fetch(kth);
}

Selected select_largest(DeviceWork& work, std::span<const float> values, size_t keep, float* rest) {
  const device::KthState kth = kth_of(work, values, keep);
  const Selected selected = room_for(work, keep);
  auto* const tiles = work.room<uint64_t>(2 * device::tile_room(values.size()));
  auto* const found = work.room<uint64_t>(2);
  device::select_top(work.launcher(), values.data(), values.size(), kth.magnitude(),
                     keep - kth.above, selected.positions, selected.values, rest, tiles, found);
  return selected;
}

Selected select_exceeding(DeviceWork& work, std::span<const float> values, float threshold,
                          const DeviceExceeding& exceeding, float* rest) {
  const Selected selected = room_for(work, exceeding.count);
  device::write_above(work.launcher(), values.data(), values.size(), threshold, exceeding.count,
                      exceeding.tiles, selected.positions, selected.values, rest);
  return selected;
}

device::Float16 float16_of(ValueFormat format) {
  return format == ValueFormat::kFp16 ? device::Float16::kHalf : device::Float16::kBfloat;
}

// The bytes of values at `bytes`; what 16 bits lose goes to `rest`.
void code_values(DeviceWork& work, const Selected& selected, ValueFormat format, std::byte* bytes,
                 float* rest) {
  if (format == ValueFormat::kFp32) {
    device::copy(work, {selected.values, selected.size},
                 {reinterpret_cast<float*>(bytes), selected.size});
    return;
  }
  float* const left = rest != nullptr ? work.room<float>(selected.size) : nullptr;
  device::encode_floats(work.launcher(), float16_of(format), selected.values, selected.size, bytes,
                        left);
  if (rest != nullptr)
    device::put_at(work.launcher(), selected.positions, left, selected.size, rest);
}

// Values and positions as they lie in a payload, behind its header. Returns their bytes.
size_t code(DeviceWork& work, const Selected& selected, ValueFormat format, size_t count,
            std::span<std::byte> out, float* rest) {
  struct Sizes {
    uint64_t low_bytes, high_bits;
  };
  const size_t blocks = device::position_blocks(selected.size);
  auto* const low = work.room<uint64_t>(device::sum_room(blocks));
  auto* const high = work.room<uint64_t>(device::sum_room(blocks));
  auto* const sizes = work.room<Sizes>(1);
  // Parameters are written where they will lie once the sizes are known.
  const size_t of_values = value_bytes(format, selected.size);
  auto* const bytes = work.room<std::byte>(max_sparse_size(count, selected.size, format));
  std::byte* const positions = bytes + of_values;
  device::plan_positions(work.launcher(), selected.positions, selected.size, positions, low, high,
                         &sizes->low_bytes);
  code_values(work, selected, format, bytes, rest);
  const auto [low_bytes, high_bits] = work.fetch(sizes);
  const size_t number_of_words = (high_bits + 31) / 32;
  auto* const words = work.room<uint32_t>(number_of_words);
  device::clear(work, words, number_of_words);
  device::write_positions(work.launcher(), selected.positions, selected.size, positions, low, high,
                          low_bytes, high_bits, words);
  const size_t size = of_values + blocks + low_bytes + (high_bits + 7) / 8;
  work.fetch(out.first(size), bytes);
  return size;
}

// Adds values that lie as in a payload.
void add_values(DeviceWork& work, const uint32_t* positions, ValueFormat format,
                const std::byte* values, size_t kept, float weight, float* out) {
  if (format == ValueFormat::kFp32)
    device::add_at(work.launcher(), positions, reinterpret_cast<const float*>(values), kept, weight,
                   out);
  else
    device::add_floats_at(work.launcher(), float16_of(format), positions, values, kept, weight,
                          out);
}

// The processor reads all of a payload first. Nothing of one that breaks a rule comes to the
// device, and of others it knows where the blocks of positions lie, so that they are read side by
// side there.
class SparseDeviceDecoder final : public DeviceDecoder {
 public:
  SparseDeviceDecoder(SharedWork work, std::unique_ptr<const Decoder> decoder, ValueFormat format)
      : DeviceDecoder(std::move(work), std::move(decoder)), format_(format) {}

 private:
  Status add(DeviceWork& work, std::span<const std::byte> payload, float weight,
             std::span<float> out) const override {
    Result<SparseParts> checked = check_sparse(payload, format_, out.size());
    if (!checked) return checked.status();
    const SparseParts& parts = checked.value();
    if (parts.kept == 0) return Status::ok();
    const size_t of_values = parts.values.size(), of_positions = parts.positions.size();
    auto* const bytes = work.room<std::byte>(of_values + of_positions);
    auto* const places = work.room<kernel::PositionPlace>(parts.places.size());
    auto* const positions = work.room<uint32_t>(parts.kept);
    work.send(bytes, {parts.values.data(), of_values + of_positions});
    work.send(places, std::as_bytes(std::span(parts.places)));
    device::unpack_positions(work.launcher(), bytes + of_values, of_positions, parts.kept, places,
                             positions);
    add_values(work, positions, format_, bytes, parts.kept, weight, out.data());
    work.await();
    return Status::ok();
  }

  ValueFormat format_;
};

}  // namespace

Encoded DeviceSparseEncoder::encode(const Signal& signal, const Call& call,
                                    std::span<std::byte> out, std::span<float> rest) {
  const auto values = signal.values;
  THINWIRE_CHECK(values.size() == count_, "codec: values are not as many as the stream has");
  work_->begin();
  float* const left = rest.empty() ? nullptr : rest.data();
  Selected selected;
  if (!values.empty()) {
    const Keeping keep = keeping(signal, call);
    work_->begin();
    const DeviceExceeding exceeding = device_exceeding(*work_, values, keep.threshold);
    exceeded(exceeding.count);
    selected = exceeding.count > keep.most
                   ? select_largest(*work_, values, keep.keep, left)
                   : select_exceeding(*work_, values, keep.threshold, exceeding, left);
  }
  ByteWriter writer(out);
  writer.put(static_cast<uint32_t>(selected.size));
  writer.put(static_cast<uint32_t>(format_));
  size_t size = writer.written();
  if (selected.size > 0) size += code(*work_, selected, format_, count_, out.subspan(size), left);
  work_->await();  // of what is left
  return {.size = size, .kept = selected.size, .target = target_};
}

bool has_device_values(ValueFormat format) noexcept {
  return format == ValueFormat::kFp32 || format == ValueFormat::kFp16 ||
         format == ValueFormat::kBf16;
}

float device_kth_magnitude(DeviceWork& work, std::span<const float> values, size_t k) {
  return kth_of(work, values, k).magnitude();
}

DeviceExceeding device_exceeding(DeviceWork& work, std::span<const float> values, float threshold) {
  auto* const tiles = work.room<uint64_t>(device::tile_room(values.size()));
  auto* const found = work.room<uint64_t>(1);
  device::count_above(work.launcher(), values.data(), values.size(), threshold, tiles, found);
  return {tiles, work.fetch(found)};
}

std::unique_ptr<Codec> make_sparse_device_codec(
    std::unique_ptr<Codec> codec, SharedWork work,
    std::function<std::unique_ptr<Encoder>(size_t count)> make_encoder) {
  if (!has_device_values(codec->info().values)) return nullptr;
  const Codec* const there = codec.get();  // as long as the result
  return with_device_ends(
      std::move(codec),
      [=](const StreamSpec& stream) {
        require_sparse_stream(there->info().name, stream);
        return make_encoder(stream.count());
      },
      [=](const StreamSpec& stream) {
        return std::make_unique<SparseDeviceDecoder>(work, there->make_decoder(stream),
                                                     there->info().values);
      });
}

}  // namespace thinwire
