// What is remembered between steps so that what one message could not carry is not lost.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
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

// The memory of one stream on one rank. A step that counts is prepare or its parts, sent for every
// part, receive and commit; any other ends with rollback instead, wherever it is. Not shared between threads.
class Feedback : public Stateful {
 public:
  // What to send this step, with its moments from the same pass. The signal points into this object
  // and into `gradient`, and is good until commit or rollback.
  // REQUIRES: as many values as the stream has. They may be NaN or Inf: the moments say so, and the
  // caller then rolls back.
  virtual Signal prepare(std::span<const float> gradient, const Call& call) = 0;

  // Values [begin, begin + gradient.size()) of what prepare would give, for memories that treat each
  // value by itself: the first values can leave before the last are looked at. A step takes either
  // prepare or parts, which together hold each value once. Empty: this memory wants the whole.
  virtual std::optional<Signal> prepare_part(std::span<const float> /*gradient*/, size_t /*begin*/,
                                             const Call& /*call*/) {
    return std::nullopt;
  }

  // Whether prepare_part and rest() are all that this memory has to do with a step: what is prepared
  // lies in rest(), and sent and receive look at nothing. What a stream is made of need not lie in
  // one piece then: every part may come from memory of its own.
  virtual bool only_adds() const noexcept { return false; }

  // Of memories that are the momentum of an optimiser: that of each tensor of the stream in turn, from
  // the next step on, in the place of what their options say. Others ignore it. Not saved.
  // REQUIRES: one for each tensor; no step under way.
  virtual void set_momentum(std::span<const Momentum> /*of_tensors*/) {}

  // Where the encoder leaves values - decode(payload). Empty when this memory keeps nothing.
  virtual std::span<float> rest() noexcept = 0;

  // Values [begin, begin + count) were encoded, and what was left of them lies in rest(). `gradient`
  // is what prepare was or would have been given, whole, as far as these values go. Parts come in any order and cover the stream.
  virtual void sent(std::span<const float> /*gradient*/, size_t /*begin*/, size_t /*count*/) {}

  // `mean` is the mean over ranks of what all of them sent, with the same bits on every rank; what it
  // holds afterwards is the mean gradient of this step. For memories that send changes of something.
  virtual void receive(std::span<float> /*mean*/) {}

  // The step counts: what it left is remembered.
  virtual void commit() = 0;

  // The step never happened, to the bit.
  virtual void rollback() = 0;
};

// One row of the registry.
struct FeedbackEntry {
  std::string_view name;
  std::string_view summary = {};
  std::string_view paper = {};
  std::vector<OptionInfo> options = {};
  std::function<std::unique_ptr<Feedback>(const Options&, const StreamSpec&)> make;

  // Of memories that add momentum to gradients: how much, with these options. Empty: they add none.
  std::function<double(const Options&)> momentum = nullptr;
  // Of memories that are the momentum of an optimiser: that of tensors which travel beside the stream
  // uncompressed, which have the same optimiser. Empty: those need none.
  std::function<std::string(const Options&)> plain = nullptr;
};

// A memory of the registry and what its text asks of it.
struct NamedFeedback {
  const FeedbackEntry* entry;
  Options options;
};

// Fails with the known names or options.
Result<NamedFeedback> find_feedback(std::string_view spec);

// Makes the memory that `spec` ("residual") names, all zero.
Result<std::unique_ptr<Feedback>> make_feedback(std::string_view spec, const StreamSpec& stream);

std::vector<const FeedbackEntry*> list_feedbacks();

}  // namespace thinwire
