// A Codec turns a span of floats into bytes and back, losing precision on purpose.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/moments.h"
#include "thinwire/options.h"
#include "thinwire/state.h"
#include "thinwire/status.h"
#include "thinwire/stream.h"

namespace thinwire {

// Which tensors share a stream when the user does not say.
enum class Grouping : uint8_t {
  kTensor,  // each weight tensor on its own; biases and norm parameters travel uncompressed
  kModel,   // all tensors, biases and norms included, as one vector
};

// What ranks settle in rounds before they encode, where an exchange offers them (Codec::rounds).
enum class Agreed : uint8_t {
  kNothing,    // every rank encodes by itself
  kScale,      // what values are measured by; payloads differ, and are added as without
  kPositions,  // whose values travel: the payload is the same on all ranks and holds their mean
  kFactors,    // what the payload is made of: the same on all ranks, and stands for a mean
};

// "nothing", "scale", "positions", "factors".
std::string_view to_string(Agreed agreed) noexcept;

// What the values of a sparse payload travel as; docs/wire-format.md, Kept values. `kMean` is for a
// method that keeps values of one sign; users cannot choose it.
enum class ValueFormat : uint8_t {
  kFp32 = 0,
  kFp16 = 1,
  kBf16 = 2,
  kInt8 = 3,
  kSign = 4,
  kMean = 5
};

struct CodecInfo {
  std::string_view name = {};  // what users type; never reused for another encoding
  uint8_t id = 0;              // written in every frame header; never reused either
  std::string_view summary = {};
  std::string_view paper = {};  // where it was published; empty for common knowledge
  bool unbiased = false;        // the mean of decode(encode(x)) over seeds is x
  bool lossless = false;        // decode(encode(x)) is x, bit for bit
  bool linear = false;          // payloads of equal ranges may be decoded, added and encoded again
  bool fixed_size = false;      // encode always writes max_encoded_size(spec) bytes
  bool vote = false;  // decoded values stand for their sign alone: what stays on a rank is coded too
  size_t block = 0;  // values coded independently of their neighbours; 0 = the whole stream
  bool sparse = false;  // keeps some values and no others: Decoder::visit, Codec::max_kept
  bool selective = false;  // not sparse, and leaves most values to the memory in every step all the same
  bool fresh = false;   // looks at Signal::fresh; others are given the same whatever it holds
  ValueFormat values = ValueFormat::kFp32;  // of those, with the options given; if sparse
  Grouping grouping = Grouping::kTensor;
  Agreed agreed = Agreed::kNothing;
  // The memory that "auto" chooses; when empty, residual for biased codecs that are not linear.
  std::string_view feedback = {};
};

// One thing that ranks agree on: each offers bytes, all are given what those came to.
struct Round {
  enum class Combine : uint8_t {
    kMean,      // of floats, added in rank order
    kMax,       // of floats
    kFromRoot,  // one rank's bytes; which rank follows from the step
  };
  Combine combine = Combine::kMean;
  size_t size = 0;  // in bytes; kFromRoot may offer fewer, the others never do
};

// What one encode call sees.
struct Signal {
  std::span<const float> values;        // what should arrive: gradient plus whatever feedback adds
  std::span<const float> fresh = {};    // this step's own part (AdaComp's dW); empty means `values`
  std::optional<Moments> moments = {};  // of `values`, where a pass over them was made already
};

// One use of a stream.
struct Call {
  uint64_t seed = 0;  // of the run; the same on every rank
  uint64_t step = 0;
  uint64_t salt = 0;    // the sender's own: draws that should be independent between ranks use it
  uint64_t offset = 0;  // of values[0] in its stream, when a stream is coded in parts
  uint64_t ranks = 1;   // whose contributions are averaged
};

struct Encoded {
  size_t size = 0;    // bytes written
  size_t kept = 0;    // values that the payload carries
  size_t target = 0;  // values that the options ask for; 0 when the method sets itself no number
};

// The sending side of one stream. Keeps what a method carries from step to step (a stage count, a
// threshold in use), so there is one per stream and it is not shared between threads.
class Encoder : public Stateful {
 public:
  // Before encode, for each of Codec::rounds in turn: `offer` writes this rank's part for the round
  // to `out`, as long as the round says, and returns its size; of kFromRoot only the root is asked.
  // `adopt` then takes what the parts of all ranks came to, the same bytes on every rank, which for
  // kFromRoot are hostile, and for the others finite floats.
  //
  // After the last round an encoder of agreed positions or factors writes the same payload on every
  // rank, the mean itself: its rounds must not depend on Call::salt, nor its state on the rank. `rest`
  // is then values minus what this rank contributed, in whatever way has a mean over ranks of
  // mean(values) - decode(payload). An encoder that was asked for no round since the last commit or
  // rollback encodes as the only rank of a group would.
  // REQUIRES: the values of `signal` stay the same from the first offer to encode.
  virtual size_t offer(size_t /*round*/, const Signal& /*signal*/, const Call& /*call*/,
                       std::span<std::byte> /*out*/) {
    return 0;
  }
  virtual Status adopt(size_t /*round*/, std::span<const std::byte> /*combined*/) {
    return Status::ok();
  }

  // Writes the payload to `out`. A non-empty `rest` receives values - decode(payload), computed in
  // the same passes; it may be `signal.values` itself. Same state, values and call give the same
  // bytes on every machine.
  // REQUIRES: finite values; as many as the stream has; out.size() >= max_encoded_size(spec).
  virtual Encoded encode(const Signal& signal, const Call& call, std::span<std::byte> out,
                         std::span<float> rest) = 0;

  // State changed by encode becomes permanent, or is forgotten: a skipped step never happened.
  // Between two of them there is at most one encode, and its rounds once.
  virtual void commit() {}
  virtual void rollback() {}
};

// Is shown some of the values that a payload keeps, with their positions in the stream.
using KeptVisitor =
    std::function<void(std::span<const uint32_t> positions, std::span<const float> values)>;

// The receiving side of one stream. Const and safe to call from any thread. `payload` came from the
// network and may hold anything; nothing outside `out` is touched. On failure `out` is unspecified.
class Decoder {
 public:
  virtual ~Decoder() = default;

  // out += weight * decoded; fails with kNonFinite where a weight beyond 1 makes a product infinite. A
  // sparse payload touches only the positions it names. REQUIRES: as many values as the stream has.
  virtual Status decode_add(std::span<const std::byte> payload, float weight,
                            std::span<float> out) const = 0;

  // out = decoded: zeros that decode_add added to with weight 1, to the bit.
  virtual Status decode(std::span<const std::byte> payload, std::span<float> out) const {
    std::fill(out.begin(), out.end(), 0.0f);
    return decode_add(payload, 1.0f, out);
  }

  // Of sparse codecs: shows all that the payload keeps, in ascending order of position, each once and
  // below the stream's count; `values` as decode_add adds them with weight 1. On failure some may have
  // been shown. Other codecs fail with kUnsupported.
  virtual Status visit(std::span<const std::byte> /*payload*/, const KeptVisitor& /*visitor*/) const {
    return Status::fail(ErrorCode::kUnsupported, "codec: not sparse, keeps all values");
  }
};

// A method with its options. Const and safe to call from any thread.
class Codec {
 public:
  virtual ~Codec() = default;

  virtual const CodecInfo& info() const noexcept = 0;

  // Upper bound in bytes on what an encoder of this stream writes, whatever the values are, so that
  // ranks can size their receives beforehand.
  virtual size_t max_encoded_size(const StreamSpec& stream) const = 0;

  // What encoders of this stream agree on in a step, in order; even and odd steps may differ. Round i
  // is combined alike in all streams that have one.
  virtual std::vector<Round> rounds(const StreamSpec& /*stream*/, bool /*odd_step*/) const {
    return {};
  }
  // No payload of this stream keeps more values. As many as there are, unless the codec is sparse.
  virtual size_t max_kept(const StreamSpec& stream) const { return stream.count(); }

  virtual std::unique_ptr<Encoder> make_encoder(const StreamSpec& stream) const = 0;
  virtual std::unique_ptr<const Decoder> make_decoder(const StreamSpec& stream) const = 0;
};

// One row of the registry.
struct CodecEntry {
  CodecInfo info;
  std::vector<OptionInfo> options = {};
  std::function<std::unique_ptr<Codec>(const Options&)> make;
};

// A codec and the text that selects it, with every option spelt out.
struct NamedCodec {
  std::unique_ptr<const Codec> codec;
  std::string canonical;  // "topk:density=0.01,values=fp32"
};

// Makes the codec that `spec` ("topk:density=0.01") names. Fails with the known names or options.
Result<NamedCodec> make_codec(std::string_view spec);

// The built-in codecs, then those that were registered, in order of registration.
std::vector<const CodecEntry*> list_codecs();

// Adds a codec of the user's own; ids 128 to 255 are kept free for them. Call before other threads
// use the registry. Throws Error(kContract) when the name or id is taken.
void register_codec(CodecEntry entry);

// Sums, largest magnitude and finiteness of `values`, for callers that encode without a Feedback.
Moments measure(std::span<const float> values);

}  // namespace thinwire
