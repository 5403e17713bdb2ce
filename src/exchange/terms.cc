// Decides every "auto" of the options, and writes down what ranks must agree on.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/terms.h"

#include <array>

#include "thinwire/feedback.h"
#include "thinwire/version.h"

namespace thinwire {
namespace {

constexpr std::array kMethods = {Method::kDense, Method::kGather, Method::kLibrary};

// Payloads of a linear codec of fixed size can be cut anywhere, added and encoded again, which
// costs a rank 2 (n-1)/n of a payload. All others are sent whole to everybody: (n-1) payloads.
Result<Method> settle_method(const std::string& name, const CodecInfo& codec) {
  const bool addable = codec.linear && codec.fixed_size;
  if (name == "auto") return addable ? Method::kDense : Method::kGather;
  for (const Method method : kMethods) {
    if (name != to_string(method)) continue;
    if (method == Method::kDense && !addable)
      return Status::fail(ErrorCode::kUnsupported,
                          "exchange: method dense cannot add payloads of codec '" +
                              std::string(codec.name) + "'; use gather");
    if (method == Method::kLibrary && !codec.lossless)
      return Status::fail(ErrorCode::kUnsupported,
                          "exchange: method library carries codec fp32 only, not '" +
                              std::string(codec.name) + "'");
    return method;
  }
  return Status::fail(ErrorCode::kUnknownName, "exchange: unknown method '" + name +
                                                   "'; known: auto, dense, gather, library");
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
    case Method::kGather:
      return "gather";
    case Method::kLibrary:
      return "library";
  }
  return "unknown";
}

Result<Terms> settle(const ExchangeOptions& options) {
  Result<NamedCodec> codec = make_codec(options.codec);
  if (!codec) return codec.status();
  const CodecInfo& info = codec.value().codec->info();
  Result<Method> method = settle_method(options.method, info);
  if (!method) return method.status();

  std::string feedback = options.feedback;
  if (feedback == "auto") feedback = info.unbiased || info.linear ? "none" : "residual";
  if (const auto memory = make_feedback(feedback, StreamSpec{}); !memory) return memory.status();

  const Grouping grouping = options.grouping.value_or(info.grouping);
  NamedCodec named = std::move(codec).value();
  return Terms{.codec = std::move(named.codec),
               .codec_text = std::move(named.canonical),
               .feedback = std::move(feedback),
               .method = method.value(),
               .grouping = grouping};
}

std::string agreement_text(const ExchangeOptions& options, const std::vector<TensorSpec>& tensors) {
  std::string text = "thinwire " THINWIRE_VERSION "\n";
  const auto line = [&](const std::string& what, const std::string& value) {
    text += what + " " + value + "\n";
  };
  if (Result<Terms> settled = settle(options); settled) {
    const Terms& terms = settled.value();
    line("codec", terms.codec_text);
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
  line("seed", std::to_string(options.seed));
  line("max skipped", std::to_string(options.max_skipped));
  line("generation", std::to_string(options.generation));
  for (const TensorSpec& tensor : tensors)
    line("tensor",
         tensor.name + " " + shape_text(tensor.shape) + " " + std::string(to_string(tensor.kind)));
  return text;
}

}  // namespace thinwire
