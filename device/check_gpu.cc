// Runs kernel texts, codecs and memories on a GPU: compares their bits with the processor's, and times them. Writes a line of
// JSON for each of them and each size. check_gpu.py calls it.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/device_codec.h"
#include "codec/testing/device_specs.h"
#include "device/coded_values.h"
#include "device/cuda/cuda_launcher.h"
#include "device/cuda/driver.h"
#include "device/device_work.h"
#include "device/memory_kernels.h"
#include "device/testing/coded_cases.h"
#include "feedback/memory_place.h"
#include "kernel/half_float.h"
#include "thinwire/feedback.h"
#include "thinwire/status.h"

namespace thinwire::device {
namespace {

constexpr int kRepeats = 20;

// A GPU, a stream on it, and memory.
class Gpu {
 public:
  explicit Gpu(std::vector<std::string> nvrtc_folders)
      : context_(std::make_shared<const CudaContext>(0)),
        current_(*context_),
        driver_(context_->driver()) {
    driver_.check(driver_.stream_create(&stream_, 1, 0), "making a stream");
    launcher_ = std::make_unique<CudaLauncher>(
        std::make_shared<CudaModules>(context_, std::move(nvrtc_folders)), stream_);
    for (CudaHandle& event : events_) driver_.check(driver_.event_create(&event, 0), "an event");
  }

  Launcher& launcher() { return *launcher_; }
  const CudaContext& context() const { return *context_; }

  // Memory with this content; `shift` bytes behind where it was allocated.
  template <class T>
  T* make(std::span<const T> content, size_t shift = 0) {
    CudaAddress memory = 0;
    driver_.check(driver_.allocate(&memory, content.size_bytes() + shift + 16), "allocating");
    memories_.push_back(memory);
    if (!content.empty())
      driver_.check(
          driver_.copy_to_device(memory + shift, content.data(), content.size_bytes(), stream_),
          "copying");
    finish();
    return reinterpret_cast<T*>(memory + shift);
  }

  template <class T>
  std::vector<T> read(const T* memory, size_t count) {
    std::vector<T> content(count);
    if (count > 0)
      driver_.check(driver_.copy_to_host(content.data(), reinterpret_cast<CudaAddress>(memory),
                                         count * sizeof(T), stream_),
                    "copying back");
    finish();
    return content;
  }

  void free_all() {
    for (const CudaAddress memory : memories_) driver_.free(memory);
    memories_.clear();
  }

  // The least milliseconds of several runs.
  double time(const std::function<void()>& work) {
    double least = 1e9;
    for (int i = 0; i < kRepeats; ++i) {
      driver_.check(driver_.event_record(events_[0], stream_), "timing");
      work();
      driver_.check(driver_.event_record(events_[1], stream_), "timing");
      finish();
      float milliseconds = 0;
      driver_.check(driver_.event_elapsed(&milliseconds, events_[0], events_[1]), "timing");
      least = std::min<double>(least, milliseconds);
    }
    return least;
  }

  // Bytes read and written in a millisecond of a copy of 100 million floats.
  double copy_rate() {
    const size_t bytes = size_t{400} << 20;
    CudaAddress from = 0, to = 0;
    driver_.check(driver_.allocate(&from, bytes), "allocating");
    driver_.check(driver_.allocate(&to, bytes), "allocating");
    const double milliseconds =
        time([&] { driver_.check(driver_.copy_on_device(to, from, bytes, stream_), "copying"); });
    driver_.free(from);
    driver_.free(to);
    return 2.0 * static_cast<double>(bytes) / milliseconds;
  }

 private:
  void finish() { driver_.check(driver_.stream_synchronise(stream_), "running kernels"); }

  std::shared_ptr<const CudaContext> context_;
  CudaContext::Current current_;
  const CudaDriver& driver_;
  CudaHandle stream_ = nullptr;
  CudaHandle events_[2] = {};
  std::unique_ptr<CudaLauncher> launcher_;
  std::vector<CudaAddress> memories_;
};

// Drawn once for each size: 100 million values take seconds.
const std::vector<float>& drawn(Values kind, size_t count, uint64_t seed = 5) {
  static std::map<std::pair<Values, uint64_t>, std::vector<float>> kept;
  std::vector<float>& values = kept[{kind, seed}];
  if (values.size() != count) values = make_values(kind, count, seed);
  return values;
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), sizeof(T) * a.size()) == 0);
}

// A codec's kernels, there and here.
struct Coded {
  std::string name;
  std::function<size_t(size_t)> size;
  std::function<void(std::span<const float>, std::span<std::byte>, std::span<float>)> encode;
  std::function<void(std::span<const std::byte>, std::span<float>)> add;
  std::function<void(Launcher&, const float*, size_t, std::byte*, float*, void*)> gpu_encode;
  std::function<void(Launcher&, const std::byte*, size_t, float*, uint32_t*)> gpu_add;
};

constexpr float kWeight = 0.3f;

std::vector<Coded> all_coded() {
  std::vector<Coded> all;
  for (const Float16 format : {Float16::kHalf, Float16::kBfloat}) {
    const bool half = format == Float16::kHalf;
    all.push_back({.name = half ? "fp16" : "bf16",
                   .size = [](size_t n) { return 2 * n; },
                   .encode = half ? kernel::to_half_saturated : kernel::to_bfloat_saturated,
                   .add =
                       [=](auto in, auto out) {
                         half ? kernel::add_half(in, kWeight, out)
                              : kernel::add_bfloat(in, kWeight, out);
                       },
                   .gpu_encode = [=](auto& on, auto x, auto n, auto out, auto rest,
                                     void*) { encode_floats(on, format, x, n, out, rest); },
                   .gpu_add = [=](auto& on, auto in, auto n, auto out,
                                  auto bad) { add_floats(on, format, in, n, kWeight, out, bad); }});
  }
  for (const size_t bits : {8, 4}) {
    const kernel::ScaledBlocks blocks{.block = 256, .bits = bits};
    all.push_back({.name = "int" + std::to_string(bits),
                   .size = [=](size_t n) { return blocks.size(n); },
                   .encode = [=](auto x, auto out,
                                 auto rest) { kernel::quantise_blocks(x, blocks, out, rest); },
                   .add = [=](auto in, auto out) { kernel::add_blocks(in, blocks, kWeight, out); },
                   .gpu_encode = [=](auto& on, auto x, auto n, auto out, auto rest,
                                     void*) { quantise_blocks(on, x, n, blocks, out, rest); },
                   .gpu_add = [=](auto& on, auto in, auto n, auto out,
                                  auto bad) { add_blocks(on, in, n, blocks, kWeight, out, bad); }});
  }
  for (const auto rule : {kernel::LevelRule::kMagnitude, kernel::LevelRule::kMeans})
    for (const size_t block : {size_t{256}, size_t{1} << 40}) {
      const kernel::LevelBlocks blocks{.block = block, .rule = rule};
      const std::string kind = rule == kernel::LevelRule::kMeans ? "onebit" : "sign";
      all.push_back(
          {.name = kind + (block == 256 ? "" : ":block=tensor"),
           .size = [=](size_t n) { return blocks.size(n); },
           .encode = [=](auto x, auto out,
                         auto rest) { kernel::encode_levels(x, blocks, out, rest); },
           .add = [=](auto in, auto out) { kernel::add_levels(in, blocks, kWeight, out); },
           .gpu_encode =
               [=](auto& on, auto x, auto n, auto out, auto rest, void* scratch) {
                 encode_levels(on, x, n, blocks, out, rest, scratch);
               },
           .gpu_add = [=](auto& on, auto in, auto n, auto out,
                          auto bad) { add_levels(on, in, n, blocks, kWeight, out, bad); }});
    }
  return all;
}

// The least milliseconds of several runs that wait for the device themselves.
double time_here(const std::function<void()>& work) {
  double least = 1e9;
  for (int i = 0; i < kRepeats; ++i) {
    const auto since = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - since;
    least = std::min(least, taken.count());
  }
  return least;
}

bool all_equal = true;
size_t compared = 0;
double copy_rate = 0;

// `bytes` are those that the kernel must read and write at least.
void report(const std::string& name, size_t count, bool equal, double milliseconds, double bytes) {
  all_equal = all_equal && equal;
  ++compared;
  std::printf(
      "{\"kernel\": \"%s\", \"values\": %zu, \"equal\": %s, \"ms\": %.6f, \"share\": %.4f}\n",
      name.c_str(), count, equal ? "true" : "false", milliseconds,
      bytes / milliseconds / copy_rate);
  std::fflush(stdout);
}

void check_coded(Gpu& gpu, const Coded& coded, size_t count, size_t shift) {
  const auto n = static_cast<double>(count);
  const std::vector<float>& values = drawn(Values::kHeavyTail, count);
  const size_t size = coded.size(count);
  std::vector<std::byte> payload(size);
  std::vector<float> rest(count), sum = drawn(Values::kNormal, count, 17);
  coded.encode(values, payload, rest);

  const float* const x = gpu.make<float>(values, 4 * shift);
  float* const left = gpu.make<float>(rest, 4 * shift);
  std::byte* const bytes = gpu.make<std::byte>(std::vector<std::byte>(size), shift);
  // The largest scratch that any of them asks for.
  void* const scratch = gpu.make<uint64_t>(std::vector<uint64_t>(count / 8192 * 4 + 64));
  const auto encode = [&] { coded.gpu_encode(gpu.launcher(), x, count, bytes, left, scratch); };
  encode();
  const bool encoded =
      same(gpu.read(bytes, size), payload) && same(gpu.read<float>(left, count), rest);
  report(coded.name + " encode, with rest", count, encoded, gpu.time(encode),
         8 * n + static_cast<double>(size));

  float* const out = gpu.make<float>(sum, 4 * shift);
  uint32_t* const bad = gpu.make<uint32_t>(std::vector<uint32_t>(1));
  const auto add = [&] { coded.gpu_add(gpu.launcher(), bytes, count, out, bad); };
  add();
  coded.add(payload, sum);
  const bool added = same(gpu.read<float>(out, count), sum) && gpu.read(bad, 1)[0] == 0;
  report(coded.name + " decode and add", count, added, gpu.time(add),
         8 * n + static_cast<double>(size));
  gpu.free_all();
}

void check_residual(Gpu& gpu, size_t count, size_t shift) {
  const std::vector<float>& residual = drawn(Values::kNormal, count, 2);
  const std::vector<float>& gradient = drawn(Values::kHeavyTail, count);
  std::vector<float> signal(count);
  const Moments here = kernel::weighted_sum_with_moments(0.9f, residual, 1, gradient, signal);
  const float* const a = gpu.make<float>(residual, 4 * shift);
  const float* const b = gpu.make<float>(gradient, 4 * shift);
  float* const out = gpu.make<float>(signal, 4 * shift);
  ChunkMoments* const entries =
      gpu.make<ChunkMoments>(std::vector<ChunkMoments>(moment_entries(count)));
  const auto form = [&] {
    weighted_sum_with_moments(gpu.launcher(), 0.9f, a, 1, b, out, count, entries);
  };
  form();
  const Moments there = moments_of(gpu.read(entries, 1)[0]);
  const bool equal = same(gpu.read<float>(out, count), signal) && there.abs_sum == here.abs_sum &&
                     there.square_sum == here.square_sum && there.abs_max == here.abs_max;
  report("residual's signal, with moments", count, equal, gpu.time(form),
         12 * static_cast<double>(count));
  gpu.free_all();
}

// A codec as exchanges use it there: kernels, counts that come back, and the copy of the payload. By the clock of the
// processor.
void check_codec(const SharedWork& work, const std::string& spec, size_t count, size_t shift) {
  const StreamSpec stream{
      .name = "s",
      .tensors = {{"a", {count / 2}, TensorKind::kConvolution}, {"b", {count - count / 2}}}};
  const auto here = make_codec(spec).value().codec;
  const auto there = make_device_codec(spec, work).value().codec;
  const std::vector<float>& values = drawn(Values::kHeavyTail, count);
  std::vector<float> rest(count), sum = drawn(Values::kNormal, count, 17), back(count);
  std::vector<std::byte> payload(here->max_encoded_size(stream)), other(payload.size());
  payload.resize(
      here->make_encoder(stream)->encode({.values = values}, {.step = 3}, payload, rest).size);

  const auto memory = [&](std::span<const float> content) {
    auto floats = std::make_unique<DeviceFloats>(work, count + shift);
    work->send(floats->values().data() + shift, std::as_bytes(content));
    return floats;
  };
  const auto read = [&](const DeviceFloats& floats) {
    work->fetch(std::as_writable_bytes(std::span(back)), floats.values().data() + shift);
    return back;
  };
  const auto x = memory(values), left = memory(values), out = memory(sum);
  size_t size = 0;
  const auto encode = [&] {  // a new one each time: what it remembers may change what it sends
    const Signal signal{.values = x->values().subspan(shift), .fresh = {}, .moments = {}};
    size = there->make_encoder(stream)
               ->encode(signal, {.step = 3}, other, left->values().subspan(shift))
               .size;
  };
  const double encoding = time_here(encode);
  other.resize(size);
  const auto n = static_cast<double>(count);
  report(spec + ": payload", count, other == payload && same(read(*left), rest), encoding,
         8 * n + static_cast<double>(size));

  const auto decoder = there->make_decoder(stream);
  const auto decode = [&] {
    decoder->decode_add(payload, kWeight, out->values().subspan(shift)).or_throw();
  };
  decode();
  here->make_decoder(stream)->decode_add(payload, kWeight, sum).or_throw();
  const bool added = same(read(*out), sum);
  report(spec + ": decode and add", count, added, time_here(decode),
         8 * n + static_cast<double>(size));
}

// Two steps of a memory, of which the second finds what the first left: nothing at every seventh place.
void check_memory(const SharedWork& work, const std::string& text, size_t count, size_t shift) {
  const StreamSpec stream = single_tensor({.name = "s", .shape = {count}});
  const auto here = make_feedback(text, stream).value();
  const auto [entry, options] = find_feedback(text).value();
  const auto there = entry->on_device(options, stream, work);
  const DeviceFloats given(work, count + shift);
  const std::span<float> gradient_there = given.values().subspan(shift);
  bool equal = true;
  double forming = 0;
  std::vector<float> back(count);
  for (uint64_t step = 0; step < 2; ++step) {
    const std::vector<float>& gradient = drawn(Values::kHeavyTail, count, 3 + step);
    work->send(gradient_there.data(), std::as_bytes(std::span(gradient)));
    const Signal signal = here->prepare(gradient, {});
    forming = time_here([&] { static_cast<void>(there->prepare(gradient_there, {})); });
    const Signal signal_there = there->prepare(gradient_there, {});
    work->fetch(std::as_writable_bytes(std::span(back)), signal_there.values.data());
    std::vector<float> left(signal.values.begin(), signal.values.end());
    equal = equal && same(back, left) && signal_there.moments->abs_sum == signal.moments->abs_sum &&
            signal_there.moments->square_sum == signal.moments->square_sum;
    for (size_t i = 3; i < count; i += 7) left[i] = 0;
    if (!here->rest().empty()) {
      std::copy(left.begin(), left.end(), here->rest().begin());
      work->send(there->rest().data(), std::as_bytes(std::span(left)));
      work->await();
    }
    here->sent(gradient, 0, count);
    there->sent(gradient_there, 0, count);
    here->commit();
    there->commit();
  }
  const StateArrays a = here->save(), b = there->save();
  for (size_t i = 0; i < a.size(); ++i) equal = equal && a[i].data == b[i].data;
  // Values of a memory that a signal reads and writes; two vectors each way where there is a velocity beside a sum.
  const bool two = text == "dgc" || text == "ahead";
  const double bytes = text == "none" ? 4 : two ? 20 : 12;
  report("memory " + text, count, equal, forming, bytes * static_cast<double>(count));
}

// Counts of values, and how many bytes or values they lie behind where memory was allocated. 100 million take two minutes.
std::vector<std::pair<size_t, size_t>> variants(size_t count) {
  if (count > 10000000) return {{count, 0}};
  if (count > 1000000) return {{count, 0}, {count + 7, 1}};
  return {{count, 0}, {count, 1}, {count + 7, 0}, {count + 7, 1}};
}

int run(std::vector<std::string> nvrtc_folders, size_t largest, const std::string& only) {
  const auto work = std::make_shared<DeviceWork>(make_cuda_memory(0, nvrtc_folders));
  Gpu gpu(std::move(nvrtc_folders));
  copy_rate = gpu.copy_rate();
  std::printf("{\"device\": \"%s\", \"architecture\": \"%s\", \"copy_gb_per_s\": %.1f}\n",
              gpu.context().device_name().c_str(), gpu.context().architecture().c_str(),
              copy_rate / 1e6);
  const auto wanted = [&](std::string_view name) { return name.find(only) != name.npos; };
  for (size_t count = 1; count <= largest; count *= 10)
    for (const auto& [size, shift] : variants(count)) {
      for (const Coded& coded : all_coded())
        if (wanted(coded.name)) check_coded(gpu, coded, size, shift);
      if (wanted("residual's signal")) check_residual(gpu, size, shift);
      for (const char* const spec : kDeviceSpecs)
        if (wanted(spec)) check_codec(work, spec, size, shift);
      for (const FeedbackEntry* const entry : list_feedbacks()) {
        const std::string name(entry->name);
        if (entry->on_device != nullptr && wanted("memory " + name))
          check_memory(work, name, size, shift);
      }
    }
  if (compared == 0) throw Error(ErrorCode::kContract, "nothing has run on the GPU");
  return all_equal ? 0 : 1;
}

}  // namespace
}  // namespace thinwire::device

// check_gpu LARGEST ONLY [FOLDER...]: sizes up to LARGEST values, of what has ONLY in its name; folders of libnvrtc.so.
int main(int count, char** words) {
  try {
    const std::vector<std::string> folders(words + std::min(count, 3), words + count);
    return thinwire::device::run(folders,
                                 count > 1 ? std::strtoull(words[1], nullptr, 10) : 1000000,
                                 count > 2 ? words[2] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "check_gpu: %s\n", error.what());
    return 2;
  }
}
