// DeviceParts: a stream in a device's memory whose parts are sent, and whose mean arrives, one by
// one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "device/device_work.h"
#include "stream/coded_stream.h"
#include "thinwire/codec.h"

namespace thinwire {

// For codecs whose payload is that of its parts one after another: of fixed size, in blocks that
// know nothing of each other. The whole stream is encoded at once, and decoded at once when the
// last part of the mean is there: a device needs many values to be busy, and each wait for it costs
// as much as a part.
class DeviceParts {
 public:
  // `codec` is the processor's. The others outlive this.
  DeviceParts(SharedWork work, std::shared_ptr<const Codec> codec, CodedStream& coded);

  // The values [begin, begin + count) that this rank adds as they are: they are kept here, and
  // nothing of them is left.
  void set_own(size_t begin, size_t count);

  // Forgets the last step. Of a rank that sits out, or whose signal is not finite, that is all.
  void begin_step();

  // Encodes this step's signal. What the payload lacks goes to the memory, which is not told yet.
  void encode(const Signal& signal, const Call& call);

  // The payload of a part, and the values of one that this rank adds as it is. REQUIRES: encoded;
  // the part begins at a block, and lies in what set_own says for own_values.
  std::span<const std::byte> payload(size_t begin, size_t count) const;
  std::span<const float> own_values(size_t begin, size_t count) const;

  // Whether a payload is as long as that of so many values.
  bool fits(size_t count, std::span<const std::byte> payload) const {
    return payload.size() == size_of(count);
  }

  // Takes the payload of a part of the mean, from `sender`; one that does not fit, such as none,
  // makes the mean lack it. True once all are there.
  bool take(size_t begin, size_t count, std::span<const std::byte> payload, size_t sender);

  // Decodes all that was taken into `mean`, in the device's memory; calls bad(sender) for parts
  // that no encoder writes. REQUIRES: all parts are there.
  void decode(std::span<float> mean, const std::function<void(size_t sender)>& bad) const;

 private:
  struct Taken {
    size_t begin, count, sender;
  };
  size_t size_of(size_t count) const;
  bool is_good(const Taken& part) const;

  SharedWork work_;
  std::shared_ptr<const Codec> codec_;
  CodedStream& coded_;
  size_t own_begin_ = 0, own_count_ = 0;
  std::vector<float> own_;
  std::vector<std::byte> payload_, mean_;
  std::vector<Taken> taken_;
  size_t values_taken_ = 0;
  bool lacks_ = false;  // a part of the mean
};

}  // namespace thinwire
