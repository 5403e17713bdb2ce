// Sparse codecs for values in a device's memory: selection, and payloads, which sparse_payload.h
// has.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "codec/device_codec.h"
#include "codec/kept_values.h"

namespace thinwire {

// What is kept: values with |x| > threshold, unless these are more than `most`. Then it is the
// `keep` largest magnitudes, of equal ones those at the lowest positions.
struct Keeping {
  float threshold = 0;
  size_t most = 0;
  size_t keep = 0;  // at most `most`
};

// Selects in the device's memory and codes there what goes into the payload. A method says what to
// keep.
class DeviceSparseEncoder : public Encoder {
 public:
  // REQUIRES: has_device_values(format).
  DeviceSparseEncoder(SharedWork work, ValueFormat format, size_t count, size_t target)
      : work_(std::move(work)), format_(format), count_(count), target_(target) {}

  Encoded encode(const Signal& signal, const Call& call, std::span<std::byte> out,
                 std::span<float> rest) final;

 protected:
  device::DeviceWork& work() noexcept { return *work_; }

 private:
  // Is asked once for every vector that is not empty, and told how many values exceed the
  // threshold.
  virtual Keeping keeping(const Signal& signal, const Call& call) = 0;
  virtual void exceeded(size_t /*values*/) {}

  SharedWork work_;
  ValueFormat format_;
  size_t count_;
  size_t target_;
};

// Whether values of this format are coded on a device: fp32, fp16 and bf16.
bool has_device_values(ValueFormat format) noexcept;

// The magnitude of the k-th largest of values in the device's memory. REQUIRES: 1 <= k <=
// values.size().
float device_kth_magnitude(device::DeviceWork& work, std::span<const float> values, size_t k);

// Of values with |x| > threshold in the device's memory: how many there are, and what
// device::write_above takes of them, good until work.begin().
struct DeviceExceeding {
  uint64_t* tiles;
  size_t count;
};
DeviceExceeding device_exceeding(device::DeviceWork& work, std::span<const float> values,
                                 float threshold);

// `codec`, which is sparse, with such encoders; null if its values have no device form.
std::unique_ptr<Codec> make_sparse_device_codec(
    std::unique_ptr<Codec> codec, SharedWork work,
    std::function<std::unique_ptr<Encoder>(size_t count)> make_encoder);

}  // namespace thinwire
