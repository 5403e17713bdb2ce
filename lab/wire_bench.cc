// Times exchanges of one large gradient against the wire time of the bytes they send, beside
// MPI_Allreduce.
//
//   lab/thin_links.py --rate 1gbit -- build/wire_bench
//
// A round runs every method once, from a barrier until the last rank has the mean; rounds follow
// each other, so that all methods see the same machine. The wire time of a method is 8 x the bytes
// that a rank sends (frames included, headers of TCP and below not) / rate.
// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "thinwire/exchange.h"

namespace thinwire {
namespace {

using Clock = std::chrono::steady_clock;

struct Settings {
  double rate = 1e9;  // bits per second
  size_t count = 10'000'000;
  size_t tensors = 1;
  int rounds = 7;
  size_t chunk = ExchangeOptions{}.chunk_values;
  std::string feedback = "auto";
  std::vector<std::string> methods = {"int8",         "int4",         "fp16",
                                      "fp32 @ dense", "fp16 @ dense", "MPI_Allreduce"};
};

const char* const kUsage =
    "wire_bench [--rate BITS/S, as 1gbit or 100mbit] [--count VALUES] [--tensors N] [--rounds N]\n"
    "           [--chunk VALUES] [--feedback MEMORY] [--methods \"CODEC, CODEC @ METHOD, ...\"]\n";

double bits_per_second(const std::string& text) {
  char* unit = nullptr;
  const double number = std::strtod(text.c_str(), &unit);
  const std::map<std::string, double> units = {
      {"", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
  const auto found = units.find(unit);
  if (found == units.end() || number <= 0)
    throw Error(ErrorCode::kBadOption, "wire_bench: no rate: '" + text + "'");
  return number * found->second;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    const size_t begin = part.find_first_not_of(' ');
    if (begin != std::string::npos) parts.push_back(part.substr(begin));
  }
  return parts;
}

Settings read(int argc, char** argv) {
  Settings settings;
  if (const char* rate = std::getenv("THINWIRE_LAB_RATE")) settings.rate = bits_per_second(rate);
  const std::map<std::string, std::function<void(const std::string&)>> options = {
      {"--rate", [&](const std::string& v) { settings.rate = bits_per_second(v); }},
      {"--count", [&](const std::string& v) { settings.count = std::stoul(v); }},
      {"--tensors", [&](const std::string& v) { settings.tensors = std::stoul(v); }},
      {"--rounds", [&](const std::string& v) { settings.rounds = std::stoi(v); }},
      {"--chunk", [&](const std::string& v) { settings.chunk = std::stoul(v); }},
      {"--feedback", [&](const std::string& v) { settings.feedback = v; }},
      {"--methods", [&](const std::string& v) { settings.methods = split(v); }}};
  for (int i = 1; i < argc; i += 2) {
    const auto found = options.find(argv[i]);
    if (found == options.end() || i + 1 == argc) {
      std::cerr << kUsage;
      std::exit(2);
    }
    found->second(argv[i + 1]);
  }
  return settings;
}

// Processor time of this process, all threads and the kernel's part.
double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Gradients of both signs and many magnitudes.
void fill(std::vector<std::vector<float>>& tensors) {
  uint32_t state = 1;
  for (auto& tensor : tensors)
    for (float& value : tensor) {
      state = state * 1664525u + 1013904223u;
      const float unit = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
      value = unit * unit * unit;
    }
}

// One way to average the tensors; returns the bytes that this rank sent.
using Average = std::function<double(std::vector<std::vector<float>>&)>;

Average make_all_reduce(int ranks) {
  return [ranks](std::vector<std::vector<float>>& tensors) {
    double bytes = 0;
    for (auto& tensor : tensors) {
      MPI_Allreduce(MPI_IN_PLACE, tensor.data(), static_cast<int>(tensor.size()), MPI_FLOAT,
                    MPI_SUM, MPI_COMM_WORLD);
      bytes += 2.0 * (ranks - 1) / ranks * 4.0 * static_cast<double>(tensor.size());
    }
    return bytes;
  };
}

Average make_exchange_of(const std::string& name, Group& group, const Settings& settings,
                         Store& store) {
  const size_t at = name.find(" @ ");
  ExchangeOptions options{.codec = name.substr(0, at), .feedback = settings.feedback};
  options.method = at == std::string::npos ? "scatter-reduce" : name.substr(at + 3);
  options.chunk_values = settings.chunk;
  options.norms = false;
  std::vector<TensorSpec> model;
  for (size_t i = 0; i < settings.tensors; ++i)
    model.push_back(
        {"w" + std::to_string(i), {settings.count / settings.tensors}, TensorKind::kLinear});
  std::shared_ptr<Exchange> exchange = make_exchange(group, store, model, options);
  return [exchange](std::vector<std::vector<float>>& tensors) {
    for (size_t i = tensors.size(); i-- > 0;)
      exchange->start(i, {.data = tensors[i].data(), .count = tensors[i].size()});
    return static_cast<double>(exchange->finish().sent_bytes);
  };
}

struct Row {
  std::string name;
  std::unique_ptr<Store> store = std::make_unique<Store>();
  Average average;
  double bytes = 0;
  double processor = 0;  // seconds of this rank, over all rounds
  std::vector<double> seconds = {};
};

void print(const Settings& settings, int ranks, std::vector<Row>& rows) {
  std::printf("%zu values, %d ranks, %g Mbit/s, %d rounds\n", settings.count, ranks,
              settings.rate / 1e6, settings.rounds);
  std::printf("%-24s %9s %9s %9s %9s %14s %7s\n", "method", "MB sent", "wire ms", "least ms",
              "median ms", "median / wire", "CPU ms");
  for (Row& row : rows) {
    std::sort(row.seconds.begin(), row.seconds.end());
    const double median = row.seconds[row.seconds.size() / 2];
    const double wire = row.bytes * 8 / settings.rate;
    std::printf("%-24s %9.3f %9.2f %9.2f %9.2f %14.3f %7.1f\n", row.name.c_str(), row.bytes / 1e6,
                wire * 1e3, row.seconds[0] * 1e3, median * 1e3, median / wire,
                row.processor / settings.rounds * 1e3);
  }
}

void run(const Settings& settings) {
  const auto group = std::move(make_mpi_group()).value();
  std::vector<Row> rows;
  for (const std::string& name : settings.methods) {
    rows.push_back({.name = name, .average = {}});
    Row& row = rows.back();
    row.average = name == "MPI_Allreduce" ? make_all_reduce(group->size())
                                          : make_exchange_of(name, *group, settings, *row.store);
  }
  std::vector<std::vector<float>> tensors(settings.tensors,
                                          std::vector<float>(settings.count / settings.tensors));
  for (int round = -1; round < settings.rounds; ++round)  // the first makes buffers and connections
    for (Row& row : rows) {
      fill(tensors);
      group->barrier();
      const double busy = processor_seconds();
      const auto since = Clock::now();
      row.bytes = row.average(tensors);
      const auto spent = Clock::now() - since;
      if (round >= 0) row.processor += processor_seconds() - busy;
      const uint64_t slowest = group->max(static_cast<uint64_t>(
          std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count()));
      if (round >= 0) row.seconds.push_back(static_cast<double>(slowest) * 1e-9);
    }
  if (group->rank() == 0) print(settings, group->size(), rows);
}

}  // namespace
}  // namespace thinwire

int main(int argc, char** argv) {
  try {
    thinwire::run(thinwire::read(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
