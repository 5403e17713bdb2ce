// Cuts payloads at blocks, and puts them together again.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/wire/device_parts.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "thinwire/stream.h"

namespace thinwire {

DeviceParts::DeviceParts(SharedWork work, std::shared_ptr<const Codec> codec, CodedStream& coded)
    : work_(std::move(work)), codec_(std::move(codec)), coded_(coded) {
  THINWIRE_CHECK(codec_->info().fixed_size, "exchange: parts of payloads of no fixed size");
}

void DeviceParts::set_own(size_t begin, size_t count) {
  own_begin_ = begin;
  own_count_ = count;
  own_.resize(count);
}

void DeviceParts::begin_step() {
  taken_.clear();
  values_taken_ = 0;
  lacks_ = false;
}

size_t DeviceParts::size_of(size_t count) const {
  return count == 0 ? 0
                    : codec_->max_encoded_size(single_tensor({.name = "part", .shape = {count}}));
}

// The signal may lie where the encoder puts what is left of it.
void DeviceParts::encode(const Signal& signal, const Call& call) {
  payload_.resize(size_of(signal.values.size()));
  if (own_count_ > 0)
    work_->fetch(std::as_writable_bytes(std::span(own_)), signal.values.data() + own_begin_);
  if (signal.values.empty()) return;
  const Encoded encoded = coded_.write(coded_.encoder(), signal, 0, call, payload_);
  THINWIRE_CHECK(encoded.size == payload_.size(), "exchange: a payload of another size");
  const std::span<float> left = coded_.rest(own_begin_, own_count_);
  if (!left.empty()) device::fill(*work_, left, 0.0f);
}

std::span<const std::byte> DeviceParts::payload(size_t begin, size_t count) const {
  return std::span(payload_).subspan(size_of(begin), size_of(count));
}

std::span<const float> DeviceParts::own_values(size_t begin, size_t count) const {
  THINWIRE_CHECK(begin >= own_begin_ && begin + count <= own_begin_ + own_count_,
                 "exchange: values that this rank does not own");
  return std::span(own_).subspan(begin - own_begin_, count);
}

bool DeviceParts::take(size_t begin, size_t count, std::span<const std::byte> payload,
                       size_t sender) {
  mean_.resize(size_of(coded_.spec().count()));
  if (fits(count, payload)) {
    std::copy(payload.begin(), payload.end(),
              mean_.begin() + static_cast<std::ptrdiff_t>(size_of(begin)));
    taken_.push_back({begin, count, sender});
  } else {
    lacks_ = true;
  }
  values_taken_ += count;
  return values_taken_ == coded_.spec().count();
}

bool DeviceParts::is_good(const Taken& part) const {
  const StreamSpec spec = single_tensor({.name = "part", .shape = {part.count}});
  std::vector<float> values(part.count);
  const auto bytes = std::span(mean_).subspan(size_of(part.begin), size_of(part.count));
  return codec_->make_decoder(spec)->decode_add(bytes, 1.0f, values).is_ok();
}

// Sums begin with -0.0, as everywhere.
void DeviceParts::decode(std::span<float> mean,
                         const std::function<void(size_t sender)>& bad) const {
  if (lacks_ || mean.empty()) return;  // the step does not count, and its tensors become zero
  device::fill(*work_, mean, -0.0f);
  if (coded_.decoder().decode_add(mean_, 1.0f, mean)) return;
  for (const Taken& part : taken_)
    if (!is_good(part)) bad(part.sender);
}

}  // namespace thinwire
