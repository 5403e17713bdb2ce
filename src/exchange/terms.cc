// Decides every "auto" of the options, and writes down what ranks must agree on.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/terms.h"

#include <array>
#include <optional>

#include "codec/codec_schedule.h"
#include "thinwire/feedback.h"
#include "thinwire/near_miss.h"
#include "thinwire/settled.h"
#include "thinwire/version.h"

namespace thinwire {
namespace {

constexpr std::array kMethods = {
    Method::kDense,   Method::kScatterReduce, Method::kGather, Method::kSparseReduce,
    Method::kLowRank, Method::kSharedIndex,   Method::kLibrary};

// Whether parts of a stream can be encoded on their own, by encoders that serve any of them.
bool is_block_local(const Codec& codec) {
  const CodecInfo& info = codec.info();
  if (info.block == 0 || !info.fixed_size || info.agreed != Agreed::kNothing) return false;
  const StreamSpec block = single_tensor({.name = "block", .shape = {info.block}});
  return codec.make_encoder(block)->save().empty();
}

Status refuse(Method method, const CodecInfo& codec, const std::string& why,
              const std::string& instead) {
  return Status::fail(ErrorCode::kUnsupported,
                      "exchange: method " + std::string(to_string(method)) + " " + why +
                          " codec '" + std::string(codec.name) + "'; use " + instead);
}

// What ranks agree on before they encode becomes the mean itself. Payloads that can be cut, added and
// encoded again cost a rank 2 (n-1)/n of a payload: in chunks, whose encoding, travel and sum overlap, where
// blocks are coded by themselves. All others are sent whole to everybody: (n-1) payloads.
Result<Method> settle_method(const std::string& name, const Codec& chosen) {
  const CodecInfo& codec = chosen.info();
  const bool addable = codec.linear && codec.fixed_size;
  const bool local = is_block_local(chosen);
  const Method usual = codec.agreed == Agreed::kFactors     ? Method::kLowRank
                       : codec.agreed == Agreed::kPositions ? Method::kSharedIndex
                       : local                              ? Method::kScatterReduce
                       : addable                            ? Method::kDense
                                                            : Method::kGather;
  if (name == "auto") return usual;
  for (const Method method : kMethods) {
    if (name != to_string(method)) continue;
    const std::string instead(to_string(usual));
    if (method == Method::kDense && !addable)
      return refuse(method, codec, "cannot add payloads of", instead);
    if (method == Method::kScatterReduce && !local)
      return refuse(method, codec, "cannot cut into blocks the payloads of", instead);
    if (method == Method::kSparseReduce && !codec.sparse)
      return refuse(method, codec, "cannot list what is kept by", instead);
    if (method == Method::kLowRank && codec.agreed != Agreed::kFactors)
      return refuse(method, codec, "finds no factors to agree on in", instead);
    if (method == Method::kSharedIndex && codec.agreed != Agreed::kPositions)
      return refuse(method, codec, "finds no positions to agree on in", instead);
    if (method == Method::kLibrary && !codec.lossless)
      return Status::fail(ErrorCode::kUnsupported,
                          "exchange: method library carries codec fp32 only, not '" +
                              std::string(codec.name) + "'");
    return method;
  }
  std::vector<std::string> names = {"auto"};
  for (const Method method : kMethods) names.emplace_back(to_string(method));
  return Status::fail(ErrorCode::kUnknownName,
                      "exchange: unknown method '" + name + "'; " + known_names(name, names));
}

// The memory of feedback = "auto".
std::string memory_for(const CodecInfo& info) {
  if (!info.feedback.empty()) return std::string(info.feedback);
  return info.unbiased || info.linear ? "none" : "residual";
}

std::string shape_text(const std::vector<uint64_t>& shape) {
  std::string text;
  for (const uint64_t extent : shape) text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text.empty() ? "scalar" : text;
}

}  // namespace

std::string_view to_string(Method method) noexcept {
  switch (method) {
    case Method::kDense:
      return "dense";
    case Method::kScatterReduce:
      return "scatter-reduce";
    case Method::kGather:
      return "gather";
    case Method::kSparseReduce:
      return "sparse-reduce";
    case Method::kLowRank:
      return "low-rank";
    case Method::kSharedIndex:
      return "shared-index";
    case Method::kLibrary:
      return "library";
  }
  return "unknown";
}

std::string describe(const Fault& fault) {
  if (fault.code == ErrorCode::kPeerLost || fault.code == ErrorCode::kTimeout) return fault.stream;
  const std::string of_rank = fault.rank < 0 ? "" : " of rank " + std::to_string(fault.rank);
  const std::string what = fault.code == ErrorCode::kCorrupt ? "arrived corrupt"
                           : fault.rank < 0                  ? "has a sum that is not finite"
                                                             : "has a NaN or Inf";
  return "stream '" + fault.stream + "'" + of_rank + " " + what;
}

Status check_exchange(const ExchangeOptions& options) {
  return settle(options, options.first_step).status();
}

Result<SettledOptions> settled_options(const ExchangeOptions& options) {
  Result<Terms> settled = settle(options, options.first_step);
  if (!settled) return settled.status();
  const Terms& terms = settled.value();
  return SettledOptions{.codec = terms.codec_text,
                        .feedback = terms.feedback,
                        .method = std::string(to_string(terms.method)),
                        .grouping = terms.grouping};
}

// What outlasts a change of codec must suit all of a schedule: buckets, streams and the memory.
Result<Terms> settle(const ExchangeOptions& options, uint64_t step) {
  Result<CodecSchedule> parsed = CodecSchedule::parse(options.codec);
  if (!parsed) return parsed.status();
  const CodecSchedule& schedule = parsed.value();
  if (Status status = schedule.check_epochs("exchange", options.steps_per_epoch); !status)
    return status;
  Terms terms;
  terms.divisible = true;
  terms.chunk_values = options.chunk_values;
  std::string feedback = "none";
  std::optional<Grouping> grouping = options.grouping;
  for (const std::string& spec : schedule.ends()) {
    const NamedCodec named = make_codec(spec).value();
    const CodecInfo& info = named.codec->info();
    Result<Method> method = settle_method(options.method, *named.codec);
    if (!method) return method.status();
    terms.divisible = terms.divisible && method.value() == Method::kDense;
    if (const std::string wanted = memory_for(info); wanted != "none") {
      if (options.feedback == "auto" && feedback != "none" && feedback != wanted)
        return Status::fail(ErrorCode::kBadOption, "exchange: the codecs of '" + options.codec +
                                                       "' go with memories " + feedback + " and " +
                                                       wanted + "; choose one as feedback");
      feedback = wanted;
    }
    if (options.grouping) continue;
    if (grouping.value_or(info.grouping) != info.grouping)
      return Status::fail(ErrorCode::kBadOption,
                          "exchange: the codecs of '" + options.codec +
                              "' group tensors differently; choose a grouping, tensor or model");
    grouping = info.grouping;
  }
  terms.grouping = *grouping;

  terms.feedback = options.feedback;
  if (terms.feedback == "auto") terms.feedback = feedback;
  if (const auto memory = make_feedback(terms.feedback, StreamSpec{}); !memory)
    return Status::fail(memory.status().code(),
                        memory.status().message() + " (auto: the codec's own)");

  NamedCodec now = std::move(make_codec(schedule.at(step, options.steps_per_epoch)).value());
  terms.method = settle_method(options.method, *now.codec).value();
  terms.codec = std::move(now.codec);
  terms.codec_text = std::move(now.canonical);
  return terms;
}

std::string agreement_text(const ExchangeOptions& options, const std::vector<TensorSpec>& tensors) {
  std::string text = "thinwire " THINWIRE_VERSION "\n";
  const auto line = [&](const std::string& what, const std::string& value) {
    text += what + " " + value + "\n";
  };
  if (Result<Terms> settled = settle(options, options.first_step); settled) {
    const Terms& terms = settled.value();
    line("codec", CodecSchedule::parse(options.codec).value().canonical());
    line("feedback", terms.feedback);
    line("method", std::string(to_string(terms.method)));
    line("grouping", terms.grouping == Grouping::kModel ? "model" : "tensor");
  } else {
    line("codec", options.codec);
    line("feedback", options.feedback);
    line("method", options.method);
  }
  std::string kinds;
  for (const TensorKind kind : options.dense_kinds)
    kinds += (kinds.empty() ? "" : ",") + std::string(to_string(kind));
  line("dense kinds", kinds);
  line("bucket bytes", std::to_string(options.bucket_bytes));
  line("chunk values", std::to_string(options.chunk_values));
  line("seed", std::to_string(options.seed));
  line("steps per epoch", std::to_string(options.steps_per_epoch));
  line("first step", std::to_string(options.first_step));
  line("max skipped", std::to_string(options.max_skipped));
  line("generation", std::to_string(options.generation));
  for (const TensorSpec& tensor : tensors)
    line("tensor",
         tensor.name + " " + shape_text(tensor.shape) + " " + std::string(to_string(tensor.kind)));
  return text;
}

Result<std::vector<NamedCodec>> scheduled_codecs(std::string_view text) {
  Result<CodecSchedule> schedule = CodecSchedule::parse(text);
  if (!schedule) return schedule.status();
  std::vector<NamedCodec> codecs;
  for (const std::string& spec : schedule.value().ends())
    codecs.push_back(std::move(make_codec(spec).value()));
  return codecs;
}

}  // namespace thinwire
