// feedback.h: the memory of one stream.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <tuple>

#include "bindings.h"
#include "buffer.h"
#include "call.h"
#include "codec_handles.h"
#include "option_rows.h"
#include "state_list.h"
#include "stream_spec.h"
#include "thinwire/feedback.h"

namespace thinwire::python {
namespace {

// A memory in a step, or between two. Not safe to share, hence the mark.
class FeedbackHandle {
 public:
  FeedbackHandle(const std::string& spec, const StreamSpec& stream)
      : count_(stream.count()), memory_(make_feedback(spec, stream).value()) {}

  // Begins a step. Whether the values are other than the gradient, whether the signal has a part of
  // this step's own, and whether that is other than the gradient: such can be copied.
  std::tuple<bool, bool, bool> prepare(nb::handle gradient, const CallTuple& call) {
    const UseMark::Guard guard(use_, kWho);
    begin(gradient, call);
    const float* given = gradient_->floats().data();
    const bool fresh = !signal_.fresh.empty();
    return {signal_.values.data() != given, fresh, fresh && signal_.fresh.data() != given};
  }

  // begin, and then the encoder, which leaves the remainder where commit expects it.
  std::tuple<nb::bytes, Counts> encode(EncoderHandle& encoder, nb::handle gradient,
                                       const CallTuple& call) {
    const UseMark::Guard guard(use_, kWho);
    begin(gradient, call);
    Encoded encoded;
    try {
      nb::bytes payload = make_bytes(encoder.capacity(), [&](std::span<std::byte> out) {
        encoded = encoder.encode(signal_, make_call(call), out, memory_->rest());
        send({});
        return encoded.size;
      });
      return {payload, counts(encoded)};
    } catch (...) {
      end_by_rollback();
      throw;
    }
  }

  void copy_values(nb::handle out) { copy(&Signal::values, out); }
  void copy_fresh(nb::handle out) { copy(&Signal::fresh, out); }

  // The end of a step that counts. `mean` becomes the mean gradient.
  void commit(nb::handle rest, nb::handle mean) {
    const UseMark::Guard guard(use_, kWho);
    if (!gradient_) throw Error(ErrorCode::kContract, "feedback: commit() without prepare()");
    std::optional<Buffer> left, arrived;
    if (!rest.is_none()) left.emplace(rest, Buffer::kRead);
    if (!mean.is_none()) arrived.emplace(mean, Buffer::kWrite);
    for (const auto* buffer : {&left, &arrived})
      if (*buffer && (*buffer)->floats().size() != count_)
        throw Error(ErrorCode::kContract, "feedback: rest or mean is not as long as the stream");
    if (!arrived && memory_->may_share_state())
      throw Error(ErrorCode::kContract,
                  "feedback: commit() needs mean, since this memory adds to an estimate of it");
    if (left && sent_)
      throw Error(ErrorCode::kContract, "feedback: encode() has kept the remainder already");
    if (!left && !sent_ && !memory_->rest().empty())
      throw Error(ErrorCode::kContract,
                  "feedback: commit() needs the remainder of encode_with_remainder");
    {
      const nb::gil_scoped_release released;
      if (!sent_) send(left ? left->floats() : std::span<const float>());
      if (arrived) memory_->receive(arrived->writable_floats());
      memory_->commit();
    }
    end();
  }

  void rollback() {
    const UseMark::Guard guard(use_, kWho);
    end_by_rollback();
  }

  StateArrays save() {
    const UseMark::Guard guard(use_, kWho);
    StateArrays arrays = memory_->save();
    seal_state(arrays);
    return arrays;
  }

  void load(const StateArrays& arrays) {
    const UseMark::Guard guard(use_, kWho);
    check_seal(arrays).or_throw();
    end_by_rollback();
    memory_->load(arrays).or_throw();
  }

 private:
  static constexpr const char* kWho = "feedback";

  void begin(nb::handle gradient, const CallTuple& call) {
    if (gradient_)
      throw Error(ErrorCode::kContract,
                  "feedback: the last prepare waits for commit() or rollback()");
    Buffer held(gradient, Buffer::kRead);
    if (held.floats().size() != count_)
      throw Error(ErrorCode::kContract, "feedback: the gradient is not as long as the stream");
    {
      const nb::gil_scoped_release released;
      signal_ = memory_->prepare(held.floats(), make_call(call));
      if (!signal_.moments) signal_.moments = measure(signal_.values);
    }
    gradient_ = std::move(held);
    if (signal_.moments->finite) return;
    end_by_rollback();
    throw Error(ErrorCode::kNonFinite,
                "feedback: gradient and memory add up to a NaN or infinity; nothing is changed");
  }

  void copy(std::span<const float> Signal::*part, nb::handle out) {
    const UseMark::Guard guard(use_, kWho);
    const std::span<const float> from = signal_.*part;
    const Buffer to(out, Buffer::kWrite);
    if (to.floats().size() != from.size())
      throw Error(ErrorCode::kContract, "feedback: out is not as long as the signal");
    const nb::gil_scoped_release released;
    std::copy(from.begin(), from.end(), to.writable_floats().begin());
  }

  // Everything was encoded; `left`, if not empty, is what the encoder left elsewhere.
  void send(std::span<const float> left) {
    const std::span<float> kept = memory_->rest();
    if (!left.empty() && !kept.empty()) std::copy(left.begin(), left.end(), kept.begin());
    memory_->sent(gradient_->floats(), 0, count_);
    signal_ = {};  // its memory may be another's now
    sent_ = true;
  }

  void end_by_rollback() {
    if (gradient_) memory_->rollback();
    end();
  }

  void end() {
    gradient_.reset();
    signal_ = {};
    sent_ = false;
  }

  const size_t count_;
  const std::unique_ptr<Feedback> memory_;
  std::optional<Buffer> gradient_;  // of the step under way: the signal may point into it
  Signal signal_;
  bool sent_ = false;  // the memory knows what is left
  UseMark use_;
};

std::vector<Row> feedback_rows() {
  std::vector<Row> rows;
  for (const FeedbackEntry* entry : list_feedbacks()) {
    Row row;
    row["name"] = to_str(entry->name);
    row["summary"] = to_str(entry->summary);
    row["paper"] = to_str(entry->paper);
    row["options"] = option_rows(entry->options);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

void bind_feedback(nb::module_& module) {
  module.def("list_feedbacks", &feedback_rows);
  nb::class_<FeedbackHandle>(module, "Feedback")
      .def(
          "__init__",
          [](FeedbackHandle* self, const std::string& spec, const std::string& name,
             const std::vector<TensorTuple>& tensors) {
            new (self) FeedbackHandle(spec, stream_spec(name, tensors));
          },
          nb::arg("spec"), nb::arg("name"), nb::arg("tensors"))
      .def("prepare", &FeedbackHandle::prepare, nb::arg("gradient"), nb::arg("call"))
      .def("encode", &FeedbackHandle::encode, nb::arg("encoder"), nb::arg("gradient"),
           nb::arg("call"))
      .def("copy_values", &FeedbackHandle::copy_values, nb::arg("out"))
      .def("copy_fresh", &FeedbackHandle::copy_fresh, nb::arg("out"))
      .def("commit", &FeedbackHandle::commit, nb::arg("rest").none(), nb::arg("mean").none())
      .def("rollback", &FeedbackHandle::rollback)
      .def("save", [](FeedbackHandle& self) { return to_list(self.save()); })
      .def(
          "load",
          [](FeedbackHandle& self, const StateList& arrays) { self.load(from_list(arrays)); },
          nb::arg("arrays"));
}

}  // namespace thinwire::python
