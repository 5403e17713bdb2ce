// ActiveStream on a device: its rehearsal, and the parts of signals and means, which travel singly.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "exchange/wire/active_stream.h"

namespace thinwire {
namespace {

// Magnitudes u^-0.4 - 1, of a Pareto law whose variance is finite, with both signs. The multiples
// of the golden ratio are u: they fill the unit interval evenly, and follow each other without a
// pattern.
std::vector<float> heavy_tail() {
  constexpr double kGoldenRatio = 0.6180339887498949;
  std::vector<float> values(size_t{1} << 14);
  for (size_t i = 0; i < values.size(); ++i) {
    const double u = std::fmod(static_cast<double>(i + 1) * kGoldenRatio, 1.0);
    values[i] = static_cast<float>((i % 2 == 0 ? 1 : -1) * (std::pow(u, -0.4) - 1));
  }
  return values;
}

// The same values over and over: what is there is copied to behind it.
void fill_with_heavy_tail(device::DeviceWork& work, std::span<float> values) {
  static const std::vector<float> kPattern = heavy_tail();
  size_t filled = std::min(kPattern.size(), values.size());
  work.send(values.data(), std::as_bytes(std::span(kPattern).first(filled)));
  while (filled < values.size()) {
    const size_t count = std::min(filled, values.size() - filled);
    device::copy(work, values.first(count), values.subspan(filled, count));
    filled += count;
  }
}

}  // namespace

// Codecs with a threshold of their own keep all of what is alike, and those that fit a law find one
// in the heavy tail.
void ActiveStream::rehearse() {
  std::unique_ptr<device::DeviceFloats> own;
  std::span<float> values = values_->reserve();
  if (values.empty()) {
    own = std::make_unique<device::DeviceFloats>(work_, spec().count());
    values = own->values();
  }
  std::vector<std::byte> payload(codec().max_encoded_size(spec()));
  const auto step = [&] {
    const Signal& signal = coded_.form(values, {});
    const size_t size = coded_.encode(encoder(), signal, 0, {}, payload).size;
    device::fill(*work_, values, 0.0f);
    decoder().decode_add(std::span(payload).first(size), 1.0f, values).or_throw();
    coded_.rollback();
    work_->await();
  };
  device::fill(*work_, values, 1.0f);
  step();
  fill_with_heavy_tail(*work_, values);
  step();
}

// Dense methods and scatter-reduce: the whole payload now, of which parts are sent.
void ActiveStream::prepare_device_parts(StepContext& context) {
  if (!open(context)) return;
  join(context);
  device_parts().begin_step();
  if (sits_out_) return;
  form_whole(context);
  if (!finite()) return;
  device_parts_->encode(coded_.part(0, spec().count()), context.call);
}

// Once for all parts, when the memory has been told of each.
void ActiveStream::count_device_rest() {
  if (device_parts_ != nullptr && !sits_out_ && finite()) measure_left(0, spec().count());
}

DeviceParts& ActiveStream::device_parts() {
  if (device_parts_ == nullptr)
    device_parts_ = std::make_unique<DeviceParts>(work_, processors_codec_, coded_);
  return *device_parts_;
}

void ActiveStream::set_own_part(size_t begin, size_t count) {
  if (work_ != nullptr && !codec().info().vote) device_parts().set_own(begin, count);
}

size_t ActiveStream::copy_device_part(size_t begin, size_t count, std::span<std::byte> out) {
  const std::span<const std::byte> payload = device_parts_->payload(begin, count);
  std::copy(payload.begin(), payload.end(),
            out.begin() + static_cast<std::ptrdiff_t>(kFrameHeaderSize));
  coded_.sent(begin, count);
  meter_.add_kept({.kept = count});
  meter_.add_frame(payload.size());
  return kFrameHeaderSize + payload.size();
}

FrameOutcome ActiveStream::take_device_part(StepContext& context, const FrameHeader& expected,
                                            std::span<const std::byte> bytes) {
  std::span<const std::byte>
      payload;  // stays empty for frames without values, and those that are refused
  const FrameOutcome outcome =
      read_frame_with(context, expected, bytes, [&](std::span<const std::byte> found) {
        if (!device_parts_->fits(expected.count, found)) return false;
        payload = found;
        return true;
      });
  end_device_part(context, device_parts_->take(expected.place, expected.count, payload,
                                               static_cast<size_t>(expected.sender)));
  return outcome;
}

void ActiveStream::end_device_part(StepContext& context, bool is_last) {
  if (!is_last) return;
  device_parts_->decode(result_, [&](size_t sender) {
    context.faults.add(ErrorCode::kCorrupt, index_, static_cast<int>(sender));
  });
}

}  // namespace thinwire
