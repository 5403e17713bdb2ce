// Codecs on a device, whose kernels run on the processor: payloads, remainders, sums and states are
// the codec's own.
// SPDX-License-Identifier: Apache-2.0
#include "codec/device_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "codec/testing/device_specs.h"
#include "core/testing/test_name.h"
#include "device/testing/coded_cases.h"
#include "device/testing/fake_device.h"

namespace thinwire {
namespace {

using device::DeviceFloats;
using device::DeviceWork;
using device::Values;
using testing::FakeDevice;
using ::testing::HasSubstr;

using Floats = std::vector<float>;
using Bytes = std::vector<std::byte>;

std::vector<uint32_t> bits_of(const Floats& values) {
  std::vector<uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), 4 * values.size());
  return bits;
}

// Floats of the device at an address that is a multiple of 4 alone.
struct Odd {
  Odd(const SharedWork& on, const Floats& values) : work(on), memory(on, values.size() + 1) {
    work->send(floats().data(), std::as_bytes(std::span(values)));
  }
  std::span<float> floats() const { return memory.values().subspan(1); }
  Floats fetch() const {
    Floats values(floats().size());
    work->fetch(std::as_writable_bytes(std::span(values)), floats().data());
    return values;
  }
  SharedWork work;
  DeviceFloats memory;
};

StreamSpec stream_of(size_t count) {
  const size_t half = count / 2;
  return {.name = "s",
          .tensors = {{"a", {half}, TensorKind::kConvolution},
                      {"empty", {0}},
                      {"b", {count - half}, TensorKind::kLinear}}};
}

enum class Rest { kNone, kInPlace, kOther };

// The two encoders of a codec, step after step.
class Pair {
 public:
  Pair(const std::string& spec, size_t count)
      : stream_(stream_of(count)),
        work_(std::make_shared<DeviceWork>(std::make_shared<FakeDevice>(count % 97))),
        here_(make_codec(spec).value().codec),
        there_(make_device_codec(spec, work_).value().codec),
        encoder_(here_->make_encoder(stream_)),
        device_encoder_(there_->make_encoder(stream_)) {
    EXPECT_EQ(here_->max_encoded_size(stream_), there_->max_encoded_size(stream_));
  }

  Bytes encode(const Floats& values, const Floats& fresh, uint64_t step, Rest rest) {
    const Call call{.seed = 9, .step = step, .salt = 3};
    Bytes payload(here_->max_encoded_size(stream_)), other(payload.size());
    Floats in_place = values, left(values.size());
    Floats& of_rest = rest == Rest::kInPlace ? in_place : left;
    const Encoded encoded =
        encoder_->encode({.values = in_place, .fresh = fresh}, call, payload,
                         rest == Rest::kNone ? std::span<float>() : std::span(of_rest));
    payload.resize(encoded.size);

    const Odd on_device(work_, values), fresh_there(work_, fresh),
        left_there(work_, Floats(values.size(), 7.0f));
    const Odd& rest_there = rest == Rest::kInPlace ? on_device : left_there;
    const Encoded there = device_encoder_->encode(
        {.values = on_device.floats(), .fresh = fresh_there.floats()}, call, other,
        rest == Rest::kNone ? std::span<float>() : rest_there.floats());
    other.resize(there.size);
    EXPECT_EQ(other, payload);
    EXPECT_EQ(there.kept, encoded.kept);
    EXPECT_EQ(there.target, encoded.target);
    if (rest != Rest::kNone) {
      EXPECT_EQ(bits_of(rest_there.fetch()), bits_of(of_rest));
    }
    if (rest != Rest::kInPlace) {
      EXPECT_EQ(bits_of(on_device.fetch()), bits_of(values));
    }
    if (step % 3 == 2) {
      encoder_->rollback();
      device_encoder_->rollback();
    } else {
      encoder_->commit();
      device_encoder_->commit();
    }
    return payload;
  }

  // What both make of any bytes.
  bool decode(const Bytes& payload) {
    const Floats before = device::make_values(Values::kNormal, stream_.count(), 17);
    const auto here = here_->make_decoder(stream_), there = there_->make_decoder(stream_);
    Floats sum = before, alone(before.size());
    const Odd sum_there(work_, before), alone_there(work_, before);
    const Status status = here->decode_add(payload, 0.25f, sum);
    EXPECT_EQ(there->decode_add(payload, 0.25f, sum_there.floats()).code(), status.code());
    if (!status) return false;
    EXPECT_EQ(bits_of(sum_there.fetch()), bits_of(sum));
    here->decode(payload, alone).or_throw();
    there->decode(payload, alone_there.floats()).or_throw();
    EXPECT_EQ(bits_of(alone_there.fetch()), bits_of(alone));
    return true;
  }

  void compare_states() {
    const StateArrays here = encoder_->save(), there = device_encoder_->save();
    ASSERT_EQ(here.size(), there.size());
    for (size_t i = 0; i < here.size(); ++i) EXPECT_EQ(here[i].data, there[i].data);
    device_encoder_->load(here).or_throw();
  }

 private:
  StreamSpec stream_;
  SharedWork work_;
  std::unique_ptr<const Codec> here_, there_;
  std::unique_ptr<Encoder> encoder_, device_encoder_;
};

class DeviceCodecs : public ::testing::TestWithParam<const char*> {};

TEST_P(DeviceCodecs, WriteAndReadThePayloadsOfTheProcessor) {
  constexpr Values kKinds[] = {Values::kNormal, Values::kHeavyTail, Values::kZeros, Values::kTiny,
                               Values::kTies};
  for (const size_t count : {0, 1, 7, 100, 1023, 20011}) {
    Pair pair(GetParam(), count);
    uint64_t step = 0;
    for (const Values kind : kKinds) {
      if (count > 2000 && kind == Values::kTies) continue;
      SCOPED_TRACE(std::to_string(count) + ", " + std::to_string(static_cast<int>(kind)));
      const Floats values = device::make_values(kind, count, 5 + step);
      const Bytes payload = pair.encode(values, device::make_values(Values::kNormal, count, step),
                                        step, static_cast<Rest>(step % 3));
      ++step;
      EXPECT_TRUE(pair.decode(payload));
    }
    pair.compare_states();
    if (HasFailure()) return;
  }
}

TEST_P(DeviceCodecs, RefuseWhatTheProcessorRefuses) {
  Pair pair(GetParam(), 1023);
  const Floats values = device::make_values(Values::kNormal, 1023);
  const Bytes good = pair.encode(values, values, 0, Rest::kNone);
  size_t refused = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Bytes bytes = good;
    if (seed % 4 == 1)  // one fault: of two either may be told
      bytes.resize(random_below({.seed = seed}, 2, bytes.size()));
    else if (seed % 4 == 2)
      bytes.push_back(std::byte{1});
    else
      bytes[random_below({.seed = seed}, 0, std::min<size_t>(bytes.size(), 64))] =
          static_cast<std::byte>(random_word({.seed = seed}, 5));
    refused += !pair.decode(bytes);
  }
  EXPECT_GT(refused, 10u);
}

INSTANTIATE_TEST_SUITE_P(Specs, DeviceCodecs, ::testing::ValuesIn(kDeviceSpecs),
                         [](const auto& row) { return test_name(row.param); });

TEST(DeviceCodecTable, HasTheCodecsThatAreTested) {
  std::vector<std::string> tested;
  for (const std::string spec : kDeviceSpecs) tested.push_back(spec.substr(0, spec.find(':')));
  for (const CodecEntry* entry : list_codecs())
    EXPECT_EQ(entry->on_device != nullptr,
              std::find(tested.begin(), tested.end(), entry->info.name) != tested.end())
        << entry->info.name;
}

TEST(DeviceCodecTable, SaysWhatHasNoForm) {
  const auto work = std::make_shared<DeviceWork>(std::make_shared<FakeDevice>());
  const auto why = [&](const char* spec) {
    const auto made = make_device_codec(spec, work);
    EXPECT_FALSE(made);
    return std::string(made.status().message());
  };
  EXPECT_THAT(why("natural"), HasSubstr("'natural' has no form for a device's memory; those with "
                                        "one: fp16, bf16, topk, adacomp"));
  for (const char* spec :
       {"topk:block=100", "topk:values=int8", "qsgd:coding=elias", "qsgd:norm=l2"})
    EXPECT_THAT(why(spec), HasSubstr("with these options")) << spec;
  EXPECT_THAT(why("topk:density=7"), HasSubstr("density"));
}

// A payload of the processor's, and its decoder on a device.
struct SparseReceiver {
  SparseReceiver(const std::string& spec, size_t count)
      : stream(stream_of(count)), payload(make_payload(spec)), sum(work, count) {
    decoder = make_device_codec(spec, work).value().codec->make_decoder(stream);
    work->await();
  }

  Bytes make_payload(const std::string& spec) const {
    const auto codec = make_codec(spec).value().codec;
    const Floats values = device::make_values(Values::kHeavyTail, stream.count());
    Bytes bytes(codec->max_encoded_size(stream));
    bytes.resize(codec->make_encoder(stream)->encode({.values = values}, {}, bytes, {}).size);
    return bytes;
  }

  size_t kept() const {
    uint32_t number = 0;
    std::memcpy(&number, payload.data(), sizeof number);
    return number;
  }

  StreamSpec stream;
  std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
  SharedWork work = std::make_shared<DeviceWork>(device);
  Bytes payload;
  DeviceFloats sum;
  std::unique_ptr<const Decoder> decoder;
};

// Packed positions are unpacked on the device: what is sent there is the payload, and where blocks
// of 512 lie.
TEST(SparseDeviceCodecs, DecodersAreSentThePayloadAndLittleMore) {
  for (const std::string density : {"0.001", "0.01", "0.1", "0.5", "1"})
    for (const std::string format : {"fp32", "fp16", "bf16"})
      for (const size_t count : {100, 20011}) {
        SparseReceiver there("topk:density=" + density + ",values=" + format, count);
        const size_t before = there.device->bytes_from_host;
        there.decoder->decode_add(there.payload, 1.0f, there.sum.values()).or_throw();
        const size_t sent = there.device->bytes_from_host - before;
        ASSERT_GT(there.kept(), 0u);
        EXPECT_LE(sent, there.payload.size() + 24 * ((there.kept() + 511) / 512));
        EXPECT_GE(sent, there.payload.size() - 8);
      }
}

// SIDCo's stages bring sums and counts, not the lists that they make.
TEST(SparseDeviceCodecs, EncodersFetchThePayloadAndLittleMore) {
  const size_t count = 20011;
  const StreamSpec stream = stream_of(count);
  for (const std::string spec : {"sidco", "sidco:stages=4", "topk", "dgc"}) {
    SCOPED_TRACE(spec);
    const auto device = std::make_shared<FakeDevice>();
    const SharedWork work = std::make_shared<DeviceWork>(device);
    const DeviceFloats values(work, count);
    const Floats signal = device::make_values(Values::kHeavyTail, count);
    work->send(values.values().data(), std::as_bytes(std::span(signal)));
    const auto codec = make_device_codec(spec, work).value().codec;
    const auto encoder = codec->make_encoder(stream);
    Bytes payload(codec->max_encoded_size(stream));
    const size_t before = device->bytes_to_host;
    const size_t size = encoder->encode({.values = values.values()}, {.step = 1}, payload, {}).size;
    EXPECT_LE(device->bytes_to_host - before, size + 3000);
    EXPECT_GT(size, 400u);
  }
}

TEST(SparseDeviceCodecs, NothingOfAPayloadThatBreaksARuleComesToTheDevice) {
  for (const char* spec : {"topk:density=0.1", "topk:density=0.1,values=fp16"}) {
    SparseReceiver there(spec, 5000);
    size_t refused = 0;
    for (uint64_t seed = 0; seed < 400; ++seed) {
      Bytes bytes = there.payload;
      if (seed % 4 == 0)
        bytes.resize(random_below({.seed = seed}, 2, bytes.size()));
      else if (seed % 4 == 1)
        bytes.resize(bytes.size() + 1 + random_below({.seed = seed}, 2, 100));
      else if (seed % 4 == 2)  // of the header
        bytes[random_below({.seed = seed}, 2, 8)] ^= std::byte{0x40};
      else  // of positions
        bytes[bytes.size() - 1 - random_below({.seed = seed}, 2, 200)] ^= std::byte{0x10};
      const size_t launches = there.device->launches, sent = there.device->bytes_from_host;
      if (there.decoder->decode_add(bytes, 1.0f, there.sum.values())) continue;
      ++refused;
      EXPECT_EQ(there.device->launches, launches);
      EXPECT_EQ(there.device->bytes_from_host, sent);
    }
    EXPECT_GT(refused, 300u);
    EXPECT_LT(refused, 400u);
  }
}

// A payload of zeros needs no kernel, but its bytes are on their way to the device.
TEST(DeviceCodecs, DecodersReturnOnceTheDeviceHasReadThePayload) {
  for (const char* spec : {"adacomp", "int8"}) {
    const auto device = std::make_shared<FakeDevice>();
    const auto work = std::make_shared<DeviceWork>(device);
    const StreamSpec stream = stream_of(1023);
    const auto codec = make_codec(spec).value().codec;
    Bytes payload(codec->max_encoded_size(stream));
    const Floats zeros(1023);
    payload.resize(codec->make_encoder(stream)->encode({.values = zeros}, {}, payload, {}).size);
    const auto decoder = make_device_codec(spec, work).value().codec->make_decoder(stream);
    const DeviceFloats sum(work, 1023);
    decoder->decode_add(payload, 1.0f, sum.values()).or_throw();
    work->set_patience(std::chrono::milliseconds(20));
    device->stop_now();
    EXPECT_THROW(static_cast<void>(decoder->decode_add(payload, 1.0f, sum.values())), Error)
        << spec;
    device->go_on();
    work->set_patience(std::chrono::seconds(30));
  }
}

}  // namespace
}  // namespace thinwire
