// The objects that Python holds for a codec and for the encoder of a stream.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <tuple>

#include "sole_user.h"
#include "thinwire/codec.h"

namespace thinwire::python {

using Counts = std::tuple<size_t, size_t, size_t>;  // of an Encoded: size, kept, target

inline Counts counts(const Encoded& encoded) {
  return {encoded.size, encoded.kept, encoded.target};
}

struct CodecHandle {
  std::shared_ptr<const Codec> codec;
  std::string canonical;
};

// The state of one stream's sending side. Not safe to share, hence the mark.
class EncoderHandle {
 public:
  // With `auto_commit` every encode counts at once; else commit or rollback says so.
  EncoderHandle(std::shared_ptr<const Codec> codec, StreamSpec stream, bool auto_commit);

  // Throws Error(kContract) when an encode still waits for its commit.
  Encoded encode(const Signal& signal, const Call& call, std::span<std::byte> out,
                 std::span<float> rest);
  void commit();
  void rollback();

  StateArrays save();
  void load(const StateArrays& arrays);

  size_t count() const noexcept { return count_; }
  size_t capacity() const noexcept { return capacity_; }

 private:
  const std::shared_ptr<const Codec> codec_;
  const size_t count_;     // values of the stream
  const size_t capacity_;  // bytes that a payload may need
  const std::unique_ptr<Encoder> encoder_;
  const bool auto_commit_;
  bool waiting_ = false;  // for commit or rollback
  UseMark use_;
};

// The signal of values that nobody has looked at yet. Throws Error(kNonFinite) for NaN and Inf, and
// Error(kContract) for another number of values; `fresh` may be empty.
Signal checked_signal(size_t count, std::span<const float> values, std::span<const float> fresh);

}  // namespace thinwire::python
