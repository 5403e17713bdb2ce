// ActiveStream, as far as its values lie in a device's memory.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "exchange/state/owner_memory.h"
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

// Calls piece(tensor, its values in result_), in the order of the stream.
template <typename Piece>
void ActiveStream::for_pieces(StepContext& context, const Piece& piece) {
  size_t begin = 0;
  for (const size_t tensor : tensors_) {
    const size_t count = context.tensors.values(tensor).size();
    piece(tensor, result_.subspan(begin, count));
    begin += count;
  }
}

// Tensors that were not given, or in another format, are in the processor's memory. Memory and
// encoder may have a queue of their own: what they are given is there.
void ActiveStream::join_on_device(StepContext& context) {
  if (tensors_.size() == 1 && context.tensors.on_device(tensors_.front())) {
    result_ = context.tensors.values(tensors_.front());
  } else {
    if (joined_there_ == nullptr)
      joined_there_ = std::make_unique<device::DeviceFloats>(work_, spec().count());
    result_ = joined_there_->values();
    for_pieces(context, [&](size_t tensor, std::span<float> to) {
      const std::span<const float> from = context.tensors.values(tensor);
      if (context.tensors.on_device(tensor))
        device::copy(*work_, from, to);
      else
        work_->send(to.data(), std::as_bytes(from));
    });
  }
  if (sits_out_ || context.gives_zeros)
    device::fill(*work_, result_, 0.0f);
  else if (context.factor != 1)
    device::scale(*work_, result_, context.factor);
  if (owed_ != nullptr && owed_->has_strays() && !sits_out_) {
    std::vector<float> values(result_.size());
    work_->fetch(std::as_writable_bytes(std::span(values)), result_.data());
    owed_->release_strays(values);
    work_->send(result_.data(), std::as_bytes(std::span(values)));
  }
  work_->await();
  if (sits_out_) signal_ = result_;
}

// Codecs with a threshold of their own keep all of what is alike, and those that fit a law find one
// in the heavy tail.
void ActiveStream::rehearse() {
  auto values = std::make_unique<device::DeviceFloats>(work_, spec().count());
  std::vector<std::byte> payload(codec().max_encoded_size(spec()));
  const auto step = [&] {
    const Signal& signal = coded_.form(values->values(), {});
    const size_t size = coded_.encode(encoder(), signal, 0, {}, payload).size;
    device::fill(*work_, values->values(), 0.0f);
    decoder().decode_add(std::span(payload).first(size), 1.0f, values->values()).or_throw();
    coded_.rollback();
    work_->await();
  };
  device::fill(*work_, values->values(), 1.0f);
  step();
  fill_with_heavy_tail(*work_, values->values());
  step();
  if (tensors_.size() > 1) joined_there_ = std::move(values);
}

// In one piece, but where the processor adds the moments of tensors one after another, so is it
// here: codecs choose by them.
void ActiveStream::prepare_on_device(StepContext& context) {
  if (!open(context)) return;
  join(context);
  if (sits_out_) return;
  if (!may_lie_apart()) return form_whole(context);
  places_.clear();
  for_pieces(context,
             [&](size_t /*tensor*/, std::span<float> values) { places_.push_back(values); });
  form_from_places(context);
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
  if (device_parts_ == nullptr || !norms_ || sits_out_ || !finite() || rest().empty()) return;
  rest_square_ = square_sum(rest());
  counters_.rest_norm = std::sqrt(rest_square_);
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
  this->count({.size = payload.size(), .kept = count}, {});
  counters_.frame_bytes += kFrameHeaderSize + payload.size();
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

void ActiveStream::give_from_device(StepContext& context) {
  count_device_rest();
  if (joined_there_ == nullptr || result_.data() != joined_there_->values().data()) return;
  for_pieces(context, [&](size_t tensor, std::span<float> from) {
    const std::span<float> to = context.tensors.values(tensor);
    if (context.tensors.on_device(tensor))
      device::copy(*work_, from, to);
    else
      work_->fetch(std::as_writable_bytes(to), from.data());
  });
}

}  // namespace thinwire
