// CodedStream: the sending side of a stream: memory, encoder, and one transaction over both.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stream/memory_slot.h"
#include "thinwire/codec.h"
#include "thinwire/feedback.h"
#include "thinwire/state.h"
#include "thinwire/stream.h"

namespace thinwire {

// A codec, and the text that selects it with every option spelt out.
struct StreamCodec {
  std::shared_ptr<const Codec> codec;
  std::string text;
};

// Values of a stream become a signal (the memory adds what is owed), the signal becomes payloads,
// what those lack stays in the memory, and the step counts or never happened.
//
// A step is
//   - form or form_joined; or begin_parts, then part for all values;
//   - encode, or keep_nothing, for all values, in parts of any order;
//   - receive, on all ends, if the memory follows what arrives;
//   - commit or rollback.
// rollback may come at any place, and undoes the step to the bit. Not shared between threads.
class CodedStream {
 public:
  template <typename T>
  using Slot = std::shared_ptr<MemorySlot<T>>;

  // Memory and encoder are kept in slots, which may lie in a store; in_store says how.
  CodedStream(StreamSpec spec, StreamCodec codec, Slot<Feedback> memory, Slot<Encoder> encoder);

  // With a new memory and a new encoder, which nothing else holds. REQUIRES: make_feedback(memory)
  // succeeds.
  CodedStream(const StreamSpec& spec, const StreamCodec& codec, const std::string& memory);

  // A slot that a store holds and outlives.
  template <typename T>
  static Slot<T> in_store(MemorySlot<T>& slot) {
    return Slot<T>(&slot, [](MemorySlot<T>* /*the store's*/) {});
  }

  const StreamSpec& spec() const noexcept { return spec_; }
  const Codec& codec() const noexcept { return *codec_; }
  Encoder& encoder() noexcept { return encoder_->object(); }  // of the whole stream
  const Decoder& decoder() const noexcept { return *decoder_; }
  Feedback& memory() noexcept { return memory_->object(); }
  const Feedback& memory() const noexcept { return memory_->object(); }

  // Whether the memory takes what encoders leave of the signal.
  bool keeps_rest() const noexcept { return !memory_->object().rest().empty(); }

  // Between two steps: the codec from now on. The memory stays, to the bit. An encoder whose codec
  // differs in its options alone goes on from its state, as far as that fits. The same text changes
  // nothing.
  void change_codec(StreamCodec codec);

  // This step's signal from all values, valid until the last one is encoded; its moments are filled
  // in.
  // REQUIRES: `gradient` stays untouched until the last value is encoded.
  const Signal& form(std::span<const float> gradient, const Call& call);

  // The same for a stream whose values lie in several places, which saves the copy into one.
  // REQUIRES: memory().only_adds(), and a codec that does not look at Signal::fresh.
  const Signal& form_joined(std::span<const std::span<const float>> places, const Call& call);

  // Starts a step whose signal is formed part by part, where the memory allows it; false, and
  // nothing has happened, where it wants the whole. `gradient` holds all values, as for form.
  bool begin_parts(std::span<const float> gradient, const Call& call);

  // Values [begin, begin + count) of the signal: of the formed one, or formed here.
  Signal part(size_t begin, size_t count);

  // Whether all values formed so far in this step are finite.
  bool finite() const noexcept { return finite_; }

  // Writes the payload of a part, which begins at value `begin`, to `out`; what the payload lacks
  // of it goes to the memory. `encoder` is that of the whole stream or of such a part. REQUIRES:
  // finite().
  Encoded encode(Encoder& encoder, const Signal& part, size_t begin, const Call& call,
                 std::span<std::byte> out);

  // The same, but the memory is not told: the caller may change rest() where it does not send a
  // value of the payload after all, then calls sent.
  Encoded write(Encoder& encoder, const Signal& part, size_t begin, const Call& call,
                std::span<std::byte> out);

  // The same as encode for values that leave as they are: nothing of them is left.
  void keep_nothing(size_t begin, size_t count);

  // What the memory has, or takes, of values [begin, begin + count); empty if it keeps nothing.
  std::span<float> rest(size_t begin, size_t count);

  // What the memory keeps of them once they were sent; empty if it keeps nothing.
  std::span<const float> left(size_t begin, size_t count);

  // Values from `begin` on were encoded, and what is left of them lies in rest(): for callers that
  // change what the encoder left. encode calls it.
  void sent(size_t begin, size_t count);

  // `result` is what all ends took this step's messages for; the memory may make another result of
  // it.
  void receive(std::span<float> result);

  void commit();
  void rollback();

 private:
  void open(std::span<const float> gradient, const Call& call);
  Signal examined(Signal signal);
  void find_positions(const Encoded& encoded, std::span<const std::byte> payload);

  StreamSpec spec_;
  std::shared_ptr<const Codec> codec_;
  Slot<Feedback> memory_;
  Slot<Encoder> encoder_;
  std::unique_ptr<const Decoder> decoder_;

  bool used_ = false;  // since the last commit or rollback
  bool in_parts_ = false;
  bool finite_ = true;
  Call call_;                        // given to them
  std::span<const float> gradient_;  // given to form or begin_parts
  Signal signal_;                    // of form and form_joined
  bool found_ = false;               // the positions of all values that this step's payload keeps:
  std::vector<uint32_t> positions_;
};

}  // namespace thinwire
