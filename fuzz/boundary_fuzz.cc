// Fuzzes messages of pipeline boundaries: bytes are finite values or a clean error, and neither
// leaves a trace in what the receiver remembers unless it commits.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "fuzz/target.h"
#include "thinwire/boundary.h"
#include "thinwire/frame.h"

using namespace thinwire;

namespace {

struct Method {
  const char* codec;
  const char* memory;
  float scale = 1;  // of activations
};
// So large that a few of them add up to more than fp32 holds.
constexpr float kLarge = 5e37f;
constexpr Method kMethods[] = {{"fp32", "none"},
                               {"topk:density=0.25", "none"},
                               {"int8", "ef"},
                               {"topk:density=0.25", "ef21"},
                               {"uniform:bits=4,block=64", "aqsgd"},
                               {"topk:density=0.25", "aqsgd:cache=fp16"},
                               {"fp32", "ef21", kLarge},
                               {"topk:density=0.25", "aqsgd", kLarge}};
constexpr size_t kSample = 24;  // values

std::vector<float> activations(std::span<const uint64_t> ids, uint64_t step, float scale) {
  std::vector<float> values;
  for (const uint64_t id : ids)
    for (size_t i = 0; i < kSample; ++i)
      values.push_back(scale * random_normal({.seed = 1 + step, .step = id}, i));
  return values;
}

// A receiver that has seen four samples, and the message of two of them and two new ones.
class Cut {
 public:
  explicit Cut(const Method& method) : scale_(method.scale) {
    BoundarySpec spec;
    spec.name = "cut";
    spec.sample_shape = {4, 6};
    spec.samples = 4;
    spec.codec = method.codec;
    spec.per_sample = true;
    spec.memory = method.memory;
    receiver_ = make_boundary_receiver(spec).value();
    const auto sender = make_boundary_sender(spec).value();
    const std::vector<uint64_t> seen = {0, 1, 2, 3};
    send(*sender, {.ids = seen});
    receiver_->decode(good_, {.ids = seen}, out_).or_throw();
    sender->commit();
    receiver_->commit();
    send(*sender, visit());
    before_ = receiver_->save();
  }

  const std::vector<std::byte>& good() const { return good_; }

  void decode(const std::vector<std::byte>& bytes) {
    if (receiver_->decode(bytes, visit(), out_))
      for (const float value : out_)
        if (!std::isfinite(value)) fuzz::bug("a value of a message that was read is not finite");
    receiver_->rollback();
    const StateArrays after = receiver_->save();
    bool same = after.size() == before_.size();
    for (size_t i = 0; same && i < after.size(); ++i) same = after[i].data == before_[i].data;
    if (!same) fuzz::bug("a message that was rolled back left a trace");
  }

 private:
  Visit visit() const { return {.step = 1, .ids = ids_}; }

  void send(BoundarySender& sender, const Visit& visit) {
    good_.resize(sender.max_message_size());
    good_.resize(sender.encode(activations(visit.ids, visit.step, scale_), visit, good_).size);
  }

  float scale_;
  const std::vector<uint64_t> ids_ = {2, 3, 4, 5};
  std::unique_ptr<BoundaryReceiver> receiver_;
  std::vector<std::byte> good_;
  std::vector<float> out_ = std::vector<float>(4 * kSample);
  StateArrays before_;
};

// The first byte of an input says which.
Cut& cut_of(uint8_t first) {
  static const auto cuts = [] {
    std::vector<std::unique_ptr<Cut>> made;
    for (const Method& method : kMethods) made.push_back(std::make_unique<Cut>(method));
    return made;
  }();
  return *cuts[first % cuts.size()];
}

}  // namespace

std::vector<std::vector<uint8_t>> fuzz_seeds() {
  std::vector<std::vector<uint8_t>> seeds;
  for (uint8_t i = 0; i < std::size(kMethods); ++i) {
    const auto& good = cut_of(i).good();
    std::vector<uint8_t> seed(1 + good.size(), i);
    std::memcpy(seed.data() + 1, good.data(), good.size());
    seeds.push_back(std::move(seed));
  }
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  Cut& cut = cut_of(data[0]);
  std::vector<std::byte> bytes(size - 1);
  if (size > 1) std::memcpy(bytes.data(), data + 1, bytes.size());
  cut.decode(bytes);
  if (bytes.size() < kFrameHeaderSize) return 0;
  FrameHeader header = read_frame(cut.good()).value().header;  // past the checksum
  header.payload_size = bytes.size() - kFrameHeaderSize;
  seal_frame(header, bytes);
  cut.decode(bytes);
  return 0;
}
