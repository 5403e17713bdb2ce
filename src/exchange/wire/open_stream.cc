// Opens a stream of an exchange's plan in a store: its memory, its encoder, and the texts that they
// are found by.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/wire/open_stream.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codec/device_codec.h"
#include "exchange/state/stream_keys.h"
#include "feedback/per_tensor.h"
#include "feedback/velocity_successor.h"
#include "thinwire/codec.h"
#include "thinwire/feedback.h"
#include "thinwire/options.h"
#include "thinwire/status.h"

namespace thinwire {
namespace {

// What a memory belongs to: a method, and tensors of these kinds and shapes.
std::string method_text(const std::string& method, const StreamSpec& spec) {
  std::string text = method + " for";
  for (const TensorSpec& tensor : spec.tensors) {
    text += " " + std::string(to_string(tensor.kind));
    for (const uint64_t extent : tensor.shape) text += " " + std::to_string(extent);
  }
  return text;
}

std::string name_of_method(const std::string& text) { return text.substr(0, text.find(" for")); }

// In the text of a method, where its object lives: nothing for the processor's memory. An object
// that belongs to the work of an earlier exchange lives elsewhere, even on the same device: its
// queue, and how long it waits, are that one's.
std::string place_text(const SharedWork& work) {
  return " on " + work->memory()->name() + "#" + std::to_string(work->number());
}

std::string without_place(std::string text) {
  const size_t begin = text.find(" on ");
  if (begin != std::string::npos) text.erase(begin, text.find(" for") - begin);
  return text;
}

// open_slot, but an object of the same method that lives elsewhere hands its state over.
template <typename T>
MemorySlot<T>& open_placed(
    Store& store, const std::string& key, const std::string& method,
    const std::function<std::unique_ptr<T>()>& make,
    const std::function<void(const std::string& before)>& before_replacing = nullptr) {
  auto& slot = store.open<MemorySlot<T>>(
      key, [&] { return std::make_unique<MemorySlot<T>>(method, make()); });
  if (slot.method() != method && without_place(slot.method()) == without_place(method)) {
    auto next = make();
    next->load(slot.object().save()).or_throw();
    slot.replace(method, std::move(next));
  }
  return open_slot<T>(store, key, method, make, before_replacing);
}

// Whether a memory for the same tensors stands under `before` that `memory`, of `method`, succeeds.
bool succeeds(const std::string& memory, const std::string& method, const std::string& before) {
  const auto tensors_of = [](const std::string& text) { return text.substr(text.find(" for")); };
  return tensors_of(method) == tensors_of(before) &&
         succeeds_velocity(memory, name_of_method(without_place(before)));
}

// What was owed to other tensors is not dropped unseen.
MemorySlot<Feedback>& open_feedback(const StreamSpec& spec, const std::string& memory, Store& store,
                                    const SharedWork& work = nullptr) {
  const std::string key = feedback_key(spec.name);
  const auto make = [&]() -> std::unique_ptr<Feedback> {
    if (work == nullptr) return std::move(make_feedback(memory, spec).value());
    const auto [entry, options] = find_feedback(memory).value();
    return entry->on_device(options, spec, work);
  };
  const std::string where = work != nullptr ? place_text(work) : "";
  const std::string method = method_text(memory + where, spec);
  auto& slot = store.open<MemorySlot<Feedback>>(
      key, [&] { return std::make_unique<MemorySlot<Feedback>>(method, make()); });
  if (succeeds(memory, method, slot.method())) {
    auto next = make();
    take_velocity(slot.object(), *next);
    slot.replace(method, std::move(next));
  }
  return open_placed<Feedback>(store, key, method, make, [&](const std::string& before) {
    if (memory != "none" && name_of_method(without_place(before)) == memory)
      throw Error(ErrorCode::kMismatch,
                  "store: '" + key + "' is the memory of other tensors, and what it owes " +
                      "them would be lost; Store::drop makes room for a new one");
  });
}

CodedStream open_coded(const StreamSpec& spec, const CodingTerms& terms, Store& store) {
  const std::string text = encoder_text(terms, spec);
  auto& memory = open_feedback(spec, terms.feedback, store);
  auto& encoder = open_placed<Encoder>(store, encoder_key(spec.name), text,
                                       [&] { return terms.codec->make_encoder(spec); });
  return CodedStream(spec, {.codec = terms.codec, .text = text}, CodedStream::in_store(memory),
                     CodedStream::in_store(encoder));
}

CodedStream open_plain(const StreamSpec& spec, const CodingTerms& terms, Store& store) {
  NamedCodec fp32 = std::move(make_codec("fp32").value());
  const StreamCodec codec{.codec = std::move(fp32.codec), .text = fp32.canonical};
  const auto [entry, options] = find_feedback(terms.feedback).value();
  if (!entry->plain) return CodedStream(spec, codec, "none");
  const std::string memory = entry->plain(options);
  std::vector<std::pair<Feedback*, size_t>> memories;
  for (const TensorSpec& tensor : spec.tensors)
    memories.emplace_back(&open_feedback(single_tensor(tensor), memory, store).object(),
                          tensor.count());
  return CodedStream(
      spec, codec,
      std::make_shared<MemorySlot<Feedback>>(memory,
                                             std::make_unique<PerTensor>(std::move(memories))),
      std::make_shared<MemorySlot<Encoder>>(codec.text, codec.codec->make_encoder(spec)));
}

}  // namespace

std::string encoder_text(const CodingTerms& terms, const StreamSpec& spec) {
  return method_text(terms.codec_text + (terms.grouping == Grouping::kGlobal ? " global" : ""),
                     spec);
}

std::string lack_of_device_form(const CodingTerms& terms, const SharedWork& work) {
  if (const auto codec = make_device_codec(terms.codec_text, work); !codec)
    return codec.status().message();
  const auto [entry, options] = find_feedback(terms.feedback).value();
  if (entry->on_device != nullptr && entry->on_device(options, StreamSpec{}, work) != nullptr)
    return "";
  return "memory '" + terms.feedback + "' has no form for a device's memory";
}

CodedStream open_device_stream(const PlannedStream& planned, const CodingTerms& terms, Store& store,
                               const SharedWork& work) {
  const StreamSpec& spec = planned.spec;
  const std::shared_ptr<const Codec> codec =
      std::move(make_device_codec(terms.codec_text, work).value().codec);
  const std::string text = method_text(terms.codec_text + place_text(work), spec);
  auto& memory = open_feedback(spec, terms.feedback, store, work);
  auto& encoder = open_placed<Encoder>(store, encoder_key(spec.name), text,
                                       [&] { return codec->make_encoder(spec); });
  return CodedStream(spec, {.codec = codec, .text = text}, CodedStream::in_store(memory),
                     CodedStream::in_store(encoder));
}

CodedStream open_stream(const PlannedStream& planned, const CodingTerms& terms, Store& store) {
  return planned.plain ? open_plain(planned.spec, terms, store)
                       : open_coded(planned.spec, terms, store);
}

}  // namespace thinwire
