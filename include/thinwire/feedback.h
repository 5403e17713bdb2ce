// Feedback: memories that keep between steps what messages could not carry, so that it is not lost.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/codec.h"
#include "thinwire/momentum.h"
#include "thinwire/options.h"
#include "thinwire/state.h"

namespace thinwire {

// The memory of one stream on one rank. A step that counts is prepare or prepare_part for all
// parts, then sent for every part, receive and commit. Any other step ends with rollback instead,
// at whatever point it is. Threads must not share a memory.
class Feedback : public Stateful {
 public:
  // Returns the signal to send in this step, with its moments from the same pass. The signal points
  // into memory of this object and into `gradient`, and is valid until all of it was sent, or until
  // rollback or load. REQUIRES: as many values as the stream has. They may be NaN or Inf; the
  // moments then say so, and the caller rolls back.
  virtual Signal prepare(std::span<const float> gradient, const Call& call) = 0;

  // Returns values [begin, begin + gradient.size()) of the signal that prepare would return. It
  // exists for memories that treat each value by itself: the first values can be sent before the
  // last are read. A step uses either prepare or parts, which together contain each value once. An
  // empty result means that this memory needs the whole stream.
  virtual std::optional<Signal> prepare_part(std::span<const float> /*gradient*/, size_t /*begin*/,
                                             const Call& /*call*/) {
    return std::nullopt;
  }

  // Whether this memory works through prepare_part and rest() alone: the prepared values are in
  // rest(), and sent and receive do nothing. The stream's values then need not be contiguous: every
  // part may come from memory of its own.
  virtual bool only_adds() const noexcept { return false; }

  // Sets the momentum of each tensor of the stream in turn, from the next step on, in the place of
  // the options' values. It is for memories that hold the momentum of an optimiser; others ignore
  // it. The values are not saved. REQUIRES: one for each tensor; no step under way.
  virtual void set_momentum(std::span<const Momentum> /*of_tensors*/) {}

  // Takes over `debt`, which this rank owes to the mean beside what the memory owes. From then on
  // the debt counts one n-th, like all that the memory sends, and no momentum and no weight of
  // gradients is applied to it. Returns false, and changes nothing, if the caller is to add the debt
  // to the next gradient: the debt may as well be there, or the memory keeps nothing (`residual`
  // with beta = 0, `velocity`, `momentum`) and weighs the debt as a gradient. REQUIRES: as many
  // values as the stream has, in the processor's memory; no step under way.
  virtual bool owe(std::span<const float> /*debt*/) { return false; }

  // The buffer into which the encoder writes values - decode(payload). It may be another after
  // prepare, and what is written there counts until all was sent. Empty if this memory keeps
  // nothing; after a prepare whose Call::lossless is true it may be empty until commit or rollback.
  virtual std::span<float> rest() noexcept = 0;

  // What is kept of the values that were sent in this step, until it ends; of other values it says
  // nothing. Empty where rest() is.
  virtual std::span<const float> left() noexcept { return rest(); }

  // Values [begin, begin + count) were encoded, and rest() holds what was left of them. `gradient`
  // is the whole gradient of the stream, as given to prepare; only these values of it are read.
  // Parts come in any order and cover the stream.
  virtual void sent(std::span<const float> /*gradient*/, size_t /*begin*/, size_t /*count*/) {}

  // The same for all values at once, where the codec kept those at `positions` alone: rest() holds
  // every other value as it was prepared. The positions ascend.
  virtual void sent_at(std::span<const float> gradient, std::span<const uint32_t> /*positions*/) {
    sent(gradient, 0, gradient.size());
  }

  // Up to how many positions sent_at is faster than sent; 0: it never is.
  virtual size_t most_positions() const noexcept { return 0; }

  // `mean` is the mean over ranks of what all of them sent, with the same bits on every rank.
  // Memories that send changes of an estimate replace it by the mean gradient of this step.
  virtual void receive(std::span<float> /*mean*/) {}

  // The step counts: its remainder is remembered.
  virtual void commit() = 0;

  // Restores the state before the step, to the bit.
  virtual void rollback() = 0;
};

// One row of the registry of memories.
struct FeedbackEntry {
  std::string_view name;
  std::string_view summary = {};
  std::string_view paper = {};
  std::vector<OptionInfo> options = {};
  std::function<std::unique_ptr<Feedback>(const Options&, const StreamSpec&)> make;
  // Makes the memory for gradients in a device's memory; null for options that have no such form.
  // Absent: none has.
  std::function<std::unique_ptr<Feedback>(const Options&, const StreamSpec&,
                                          std::shared_ptr<device::DeviceWork>)>
      on_device = nullptr;

  // For memories that add momentum to gradients: the momentum with these options. Empty: they add
  // none.
  std::function<double(const Options&)> momentum = nullptr;
  // For memories that hold the momentum of an optimiser: the memory of tensors that are sent
  // uncompressed beside the stream, and have the same optimiser. Empty: those tensors need none.
  std::function<std::string(const Options&)> plain = nullptr;
  // Whether it keeps what messages lacked, and adds all that it keeps to the next gradient.
  bool owes = false;
};

// A memory of the registry, and the options that a text gives it.
struct NamedFeedback {
  const FeedbackEntry* entry;
  Options options;
};

// Finds the memory that a text names. Errors name the known memories or options.
Result<NamedFeedback> find_feedback(std::string_view spec);

// Makes the memory that `spec` names, for example "residual". It starts at zero.
Result<std::unique_ptr<Feedback>> make_feedback(std::string_view spec, const StreamSpec& stream);

std::vector<const FeedbackEntry*> list_feedbacks();

}  // namespace thinwire
