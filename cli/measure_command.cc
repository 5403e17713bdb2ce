// thinwire measure: encodes the gradients that a run recorded with several codecs.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/table.h"
#include "cli/text.h"
#include "thinwire/codec.h"
#include "thinwire/trainer.h"

namespace thinwire::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct MeasureArguments {
  std::string folder;
  std::vector<std::string> codecs;
  bool json = false;
};

// One recorded step under one codec, all streams together.
struct StepFigures {
  uint64_t step = 0;
  uint64_t values = 0;
  uint64_t kept = 0;
  uint64_t target = 0;
  uint64_t payload_bytes = 0;
  double error_square = 0;  // of values - decode(payload)
  double square = 0;        // of values
  double encode_seconds = 0;

  double density() const { return static_cast<double>(kept) / static_cast<double>(values); }
  double over_target() const { return static_cast<double>(kept) / static_cast<double>(target); }
};

// A codec with an encoder for every stream, as a run has it: what encoders learn, they keep.
class Subject {
 public:
  explicit Subject(const std::string& text) : named_(make_codec(text).value()) {}

  const std::string& name() const { return named_.canonical; }
  const std::vector<StepFigures>& steps() const { return steps_; }

  void see(const RecordedStep& step) {
    StepFigures figures{.step = step.step};
    for (const RecordedSignal& signal : step.signals) see(signal, step.step, figures);
    steps_.push_back(figures);
  }

 private:
  struct Ends {
    StreamSpec stream;
    std::unique_ptr<Encoder> encoder;
    std::unique_ptr<const Decoder> decoder;
  };

  static bool same_shapes(const StreamSpec& a, const StreamSpec& b) {
    return std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(),
                      [](const TensorSpec& x, const TensorSpec& y) { return x.shape == y.shape; });
  }

  static std::string where(const RecordedSignal& signal, uint64_t step) {
    return "measure: stream '" + signal.stream.name + "' of step " + std::to_string(step) + " ";
  }

  void see(const RecordedSignal& signal, uint64_t step, StepFigures& figures) {
    Ends& ends = streams_[signal.stream.name];
    if (ends.encoder == nullptr)
      ends = {.stream = signal.stream,
              .encoder = named_.codec->make_encoder(signal.stream),
              .decoder = named_.codec->make_decoder(signal.stream)};
    if (!same_shapes(ends.stream, signal.stream))
      throw Error(ErrorCode::kCorrupt, where(signal, step) + "has another shape than before");
    payload_.resize(named_.codec->max_encoded_size(signal.stream));
    rest_.resize(signal.values.size());

    const Moments moments = measure(signal.values);
    if (!moments.finite)
      throw Error(ErrorCode::kCorrupt, where(signal, step) + "has values that are not finite");
    const Signal given{.values = signal.values, .fresh = signal.fresh, .moments = moments};
    const auto begin = Clock::now();
    const Encoded encoded = ends.encoder->encode(given, {.step = step}, payload_, rest_);
    figures.encode_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    ends.encoder->commit();

    // What a receiver has, not what the sender believes: the payload is decoded.
    rest_ = signal.values;
    ends.decoder->decode_add(std::span(payload_).first(encoded.size), -1.0f, rest_).or_throw();
    figures.values += signal.values.size();
    figures.kept += encoded.kept;
    figures.target += encoded.target;
    figures.payload_bytes += encoded.size;
    figures.error_square += measure(rest_).square_sum;
    figures.square += moments.square_sum;
  }

  NamedCodec named_;
  std::map<std::string, Ends> streams_;
  std::vector<StepFigures> steps_;
  std::vector<std::byte> payload_;
  std::vector<float> rest_;
};

struct Spread {
  double mean = 0;
  double deviation = 0;  // standard deviation over steps; 0 for one
};

template <typename Figure>
Spread spread_of(const std::vector<StepFigures>& steps, const Figure& figure) {
  Spread spread;
  for (const StepFigures& step : steps) spread.mean += std::invoke(figure, step);
  spread.mean /= static_cast<double>(steps.size());
  double square = 0;
  for (const StepFigures& step : steps)
    square += std::pow(std::invoke(figure, step) - spread.mean, 2);
  if (steps.size() > 1)
    spread.deviation = std::sqrt(square / static_cast<double>(steps.size() - 1));
  if (spread.deviation < 1e-12 * std::fabs(spread.mean)) spread.deviation = 0;  // rounding
  return spread;
}

double codec_ratio(const StepFigures& step) {
  return 4.0 * static_cast<double>(step.values) / static_cast<double>(step.payload_bytes);
}
double relative_error(const StepFigures& step) {
  return step.square > 0 ? std::sqrt(step.error_square / step.square) : 0;
}

std::string with_spread(const Spread& spread) {
  return fmt::format("{:.4g} ± {:.2g}", spread.mean, spread.deviation);
}

void print_table(const std::vector<Subject>& subjects) {
  Table table(
      {"codec", "kept per value", "kept / target", "codec ratio", "relative error", "encode ms"});
  for (const Subject& subject : subjects) {
    const auto& steps = subject.steps();
    const bool has_target = steps.front().target > 0;
    table.add({subject.name(), with_spread(spread_of(steps, &StepFigures::density)),
               has_target ? with_spread(spread_of(steps, &StepFigures::over_target)) : "",
               with_spread(spread_of(steps, codec_ratio)),
               with_spread(spread_of(steps, relative_error)),
               fmt::format("{:.2f}", 1000 * spread_of(steps, [](const StepFigures& step) {
                                              return step.encode_seconds;
                                            }).mean)});
  }
  fmt::print("{}", table.aligned());
}

void print_json(const std::vector<Subject>& subjects) {
  auto all = nlohmann::ordered_json::array();
  for (const Subject& subject : subjects) {
    nlohmann::ordered_json json = {{"codec", subject.name()}, {"steps", nlohmann::json::array()}};
    for (const StepFigures& step : subject.steps())
      json["steps"].push_back({{"step", step.step},
                               {"values", step.values},
                               {"kept", step.kept},
                               {"target", step.target},
                               {"payload_bytes", step.payload_bytes},
                               {"relative_error", relative_error(step)},
                               {"encode_seconds", step.encode_seconds}});
    all.push_back(std::move(json));
  }
  fmt::print("{}\n", all.dump(2));
}

void run(const MeasureArguments& arguments) {
  std::vector<Subject> subjects;
  for (const std::string& codec : arguments.codecs) subjects.emplace_back(codec);
  const uint64_t steps = read_recorded_steps(arguments.folder, [&](const RecordedStep& step) {
    for (Subject& subject : subjects) subject.see(step);
  });
  if (arguments.json) return print_json(subjects);
  print_table(subjects);
  fmt::print("\n{} recorded steps of one worker; mean ± standard deviation over steps.\n", steps);
}

}  // namespace

void add_measure_command(CLI::App& program, int& /*exit_code*/) {
  auto arguments = std::make_shared<MeasureArguments>();
  CLI::App* command = program.add_subcommand(
      "measure", "Encode the gradients that a run recorded; compare codecs on them");
  command
      ->add_option("FOLDER", arguments->folder,
                   "Recorded steps: the folder signals of a run with --set run.record_every=N")
      ->required();
  command->add_option("CODEC", arguments->codecs, "As in sidco:density=0.01")->required();
  command->add_flag("--json", arguments->json, "Every step's figures, for programs");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace thinwire::cli
