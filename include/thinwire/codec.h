// Codec: turns a span of floats into bytes and back; most codecs lose precision on purpose.
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

#include "thinwire/grouping.h"
#include "thinwire/moments.h"
#include "thinwire/options.h"
#include "thinwire/state.h"
#include "thinwire/status.h"
#include "thinwire/stream.h"

namespace thinwire {
namespace device {
class DeviceWork;
}

// What ranks agree on, in rounds, before they encode, if an exchange offers rounds (Codec::rounds).
enum class Agreed : uint8_t {
  kNothing,    // every rank encodes by itself
  kScale,      // the scale; payloads differ, and are added as without an agreement
  kPositions,  // which values are sent: all ranks have the same payload, which holds their mean
  kFactors,    // the factors that form the payload: the same on all ranks, and those of a mean
};

// "nothing", "scale", "positions", "factors".
std::string_view to_string(Agreed agreed) noexcept;

// The format of the values of a sparse payload; docs/wire-format.md, Sparse positions and values.
// `kMean` is for a method that keeps values of one sign; users cannot choose it.
enum class ValueFormat : uint8_t {
  kFp32 = 0,
  kFp16 = 1,
  kBf16 = 2,
  kInt8 = 3,
  kSign = 4,
  kMean = 5,
  kInt2 = 6
};

struct CodecInfo {
  std::string_view name = {};  // what users type; never reused for another encoding
  uint8_t id = 0;              // written in every frame header; never reused either
  std::string_view summary = {};
  std::string_view paper = {};  // publication; empty for common knowledge
  bool unbiased = false;        // the mean of decode(encode(x)) over seeds is x
  bool lossless = false;        // decode(encode(x)) is x, bit for bit
  bool linear = false;          // payloads of equal ranges may be decoded, added and encoded again
  bool fixed_size = false;      // encode always writes max_encoded_size(spec) bytes
  bool vote = false;    // only the signs of decoded values count; a rank encodes its own part, too
  size_t block = 0;     // values per block that is coded by itself; 0 = the whole stream
  bool sparse = false;  // keeps only some values: Decoder::visit, Codec::max_kept
  bool selective = false;  // not sparse, but leaves most values to the memory in every step
  bool fresh = false;      // uses Signal::fresh
  ValueFormat values = ValueFormat::kFp32;  // if sparse: as the options say
  // Sparse, and selects by a threshold, in the place of which Grouping::kGlobal may put one for
  // several streams. Codec::target says how many values a stream should keep. The payload is that
  // of docs/wire-format.md, Sparse positions and values.
  bool global_threshold = false;
  Grouping grouping = Grouping::kTensor;  // if the user does not choose one
  Agreed agreed = Agreed::kNothing;
  // The memory that "auto" chooses. If empty, it is residual for biased codecs that are not linear,
  // and none for others.
  std::string_view feedback = {};
};

// One round of agreement: each rank offers bytes, and all get the combination of them.
struct Round {
  enum class Combine : uint8_t {
    kMean,      // mean of floats, added in rank order
    kMax,       // maximum of floats
    kFromRoot,  // one rank's bytes; which rank follows from the step
  };
  Combine combine = Combine::kMean;
  size_t size = 0;  // in bytes; only an offer of kFromRoot may be smaller
};

// The input of one encode call.
struct Signal {
  std::span<const float> values;      // what should arrive: the gradient plus what the memory adds
  std::span<const float> fresh = {};  // this step's own part (AdaComp's dW); empty means `values`
  std::optional<Moments> moments = {};  // of `values`, if a pass over them was already made
};

// What a stream may send if one threshold selects the values of several streams.
struct Quota {
  float threshold = 0;  // values with |x| > threshold,
  size_t most = 0;      // at most so many, the largest
};

// The circumstances of one use of a stream.
struct Call {
  uint64_t seed = 0;  // of the run; the same on every rank
  uint64_t step = 0;
  uint64_t salt = 0;                // differs between senders, for draws that should be independent
  uint64_t offset = 0;              // of values[0] in its stream, if the stream is coded in parts
  uint64_t ranks = 1;               // by whose number the sum of contributions is divided
  uint64_t participants = 0;        // the ranks that contribute in this step; 0: all
  std::optional<Quota> quota = {};  // of Grouping::kGlobal: replaces the codec's own selection
  bool lossless = false;            // for memories: what is encoded arrives as it is

  // How many times each participant counts in a sum over all ranks. A value that all ranks receive
  // leaves the memories once if each participant subtracts this many times the value from its own.
  float share() const noexcept {
    return participants == 0
               ? 1.0f
               : static_cast<float>(static_cast<double>(ranks) / static_cast<double>(participants));
  }
};

struct Encoded {
  size_t size = 0;    // bytes written
  size_t kept = 0;    // values that the payload carries
  size_t target = 0;  // values that the options ask for; 0 if the method has no target
  // Where the kept values are, ascending, from an encoder that has a list of them; otherwise empty,
  // and the decoder tells. Valid until the encoder's next call.
  std::span<const uint32_t> positions = {};
};

// The sending side of one stream. It keeps what a method carries from step to step (a number of
// stages, a threshold in use). So there is one encoder per stream, and threads must not share it.
class Encoder : public Stateful {
 public:
  // Before encode these two are called for each of Codec::rounds in turn. `offer` writes this
  // rank's part for the round to `out`, as long as the round says, and returns its size; in
  // kFromRoot only the root is asked. `adopt` then takes the combination of the parts of all ranks,
  // the same bytes on every rank. In kFromRoot these bytes may be hostile; in other rounds they are
  // finite floats.
  //
  // After the last round an encoder with agreed positions or factors writes the same payload on
  // every rank, which is that of the mean. Therefore its rounds must not depend on Call::salt, nor
  // its state on the rank. `rest` is then values minus this rank's contribution; any definition of
  // the contribution will do if the mean of `rest` over ranks is mean(values) - decode(payload). An
  // encoder that was asked for no round since the last commit or rollback encodes as the only rank
  // of a group would. REQUIRES: the values of `signal` stay the same from the first offer to
  // encode.
  virtual size_t offer(size_t /*round*/, const Signal& /*signal*/, const Call& /*call*/,
                       std::span<std::byte> /*out*/) {
    return 0;
  }
  virtual Status adopt(size_t /*round*/, std::span<const std::byte> /*combined*/) {
    return Status::ok();
  }

  // Writes the payload to `out`. A non-empty `rest` receives values - decode(payload), computed in
  // the same passes; it may be `signal.values` itself. The same state, values and call give the
  // same bytes on every machine. REQUIRES: finite values, as many as the stream has; out.size() >=
  // max_encoded_size(spec).
  virtual Encoded encode(const Signal& signal, const Call& call, std::span<std::byte> out,
                         std::span<float> rest) = 0;

  // commit makes the state that encode changed permanent; rollback discards it, so that a skipped
  // step leaves no trace. Between two of these calls there is at most one encode, with its rounds
  // once.
  virtual void commit() {}
  virtual void rollback() {}
};

// Called with some of the values that a payload keeps, and their positions in the stream.
using KeptVisitor =
    std::function<void(std::span<const uint32_t> positions, std::span<const float> values)>;

// The receiving side of one stream. It is const and safe to call from any thread. `payload` comes
// from the network and may hold anything. Only `out` is written to; on failure its content is
// unspecified.
class Decoder {
 public:
  virtual ~Decoder() = default;

  // out += weight * decoded. Fails with kNonFinite if a weight beyond 1 makes a product infinite. A
  // sparse payload touches only the positions that it names. REQUIRES: as many values as the stream
  // has.
  virtual Status decode_add(std::span<const std::byte> payload, float weight,
                            std::span<float> out) const = 0;

  // out = decoded: the same bits as decode_add with weight 1 into zeros.
  virtual Status decode(std::span<const std::byte> payload, std::span<float> out) const {
    std::fill(out.begin(), out.end(), 0.0f);
    return decode_add(payload, 1.0f, out);
  }

  // For sparse codecs: calls `visitor` with all values that the payload keeps, in ascending order
  // of position, each once and below the stream's count. The values are those that decode_add adds
  // with weight 1. On failure some may have been shown. Other codecs fail with kUnsupported.
  virtual Status visit(std::span<const std::byte> /*payload*/,
                       const KeptVisitor& /*visitor*/) const {
    return Status::fail(ErrorCode::kUnsupported, "codec: not sparse, keeps all values");
  }
};

// A codec with its options. It is const and safe to call from any thread.
class Codec {
 public:
  virtual ~Codec() = default;

  virtual const CodecInfo& info() const noexcept = 0;

  // Upper bound on the bytes that an encoder of this stream writes, whatever the values are. Ranks
  // size their receives by it.
  virtual size_t max_encoded_size(const StreamSpec& stream) const = 0;

  // The rounds in which encoders of this stream agree in a step, in order; even and odd steps may
  // differ. Round i is combined in the same way in all streams that have it.
  virtual std::vector<Round> rounds(const StreamSpec& /*stream*/, bool /*odd_step*/) const {
    return {};
  }
  // The number of values that a payload of this stream should keep; 0 if the codec has no target.
  virtual size_t target(const StreamSpec& /*stream*/) const { return 0; }

  // The largest number of values that a payload of this stream keeps. It is the stream's count,
  // unless the codec is sparse.
  virtual size_t max_kept(const StreamSpec& stream) const { return stream.count(); }

  virtual std::unique_ptr<Encoder> make_encoder(const StreamSpec& stream) const = 0;
  virtual std::unique_ptr<const Decoder> make_decoder(const StreamSpec& stream) const = 0;
};

// One row of the registry of codecs.
struct CodecEntry {
  CodecInfo info;
  std::vector<OptionInfo> options = {};
  std::function<std::unique_ptr<Codec>(const Options&)> make;
  // Makes the codec for values in a device's memory; null for options that have no such form.
  // Absent: none has.
  std::function<std::unique_ptr<Codec>(const Options&, std::shared_ptr<device::DeviceWork>)>
      on_device = nullptr;
};

// A codec and the text that selects it, with every option written out.
struct NamedCodec {
  std::unique_ptr<const Codec> codec;
  std::string canonical;  // "topk:density=0.01,values=fp32"
};

// Makes the codec that `spec` names, for example "topk:density=0.01". Errors name the known codecs
// or options.
Result<NamedCodec> make_codec(std::string_view spec);

// The built-in codecs, followed by registered ones in the order of registration.
std::vector<const CodecEntry*> list_codecs();

// Adds a codec of the user's own; ids 128 to 255 are reserved for these. Call it before other
// threads use the registry. Throws Error(kContract) if the name or id is taken.
void register_codec(CodecEntry entry);

// Computes sums, largest magnitude and finiteness of `values`, for callers that encode without a
// Feedback.
Moments measure(std::span<const float> values);

}  // namespace thinwire
