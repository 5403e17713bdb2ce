// Parcels of messages: what is written is read, however it is cut, and what is no parcel is
// refused.
// SPDX-License-Identifier: Apache-2.0
#include "comm/c10d/parcel.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

namespace thinwire {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<Bytes> messages_of(std::initializer_list<size_t> sizes) {
  std::vector<Bytes> all;
  for (const size_t size : sizes) {
    Bytes& one = all.emplace_back(size);
    for (size_t i = 0; i < size; ++i) one[i] = static_cast<std::byte>(i * 7 + all.size());
  }
  return all;
}

std::vector<Bytes> write(const std::vector<Bytes>& messages, size_t capacity) {
  std::vector<Bytes> parcels;
  Bytes memory(capacity);
  ParcelWriter writer(memory);
  const auto next = [&] {
    const auto full = writer.finish();
    parcels.emplace_back(full.begin(), full.end());
    writer = ParcelWriter(memory);
  };
  for (size_t i = 0; i < messages.size(); ++i) {
    const MessageFields fields{.context = i, .size = messages[i].size(), .tag = int32_t(i) + 5};
    if (!writer.begin(fields)) {
      next();
      EXPECT_TRUE(writer.begin(fields));
    }
    std::span<const std::byte> left = messages[i];
    while (!(left = left.subspan(writer.add(left))).empty()) next();
  }
  if (!writer.empty()) next();
  return parcels;
}

bool read(const std::vector<Bytes>& parcels, std::vector<Bytes>& messages) {
  ParcelReader reader;
  bool open = false;
  const auto take = [&](const ParcelReader::Part& part) {
    if (!open) messages.emplace_back();
    messages.back().insert(messages.back().end(), part.bytes.begin(), part.bytes.end());
    open = !part.last;
    EXPECT_LE(messages.back().size(), part.fields.size);
    if (part.last) {
      EXPECT_EQ(part.fields.size, messages.back().size());
    }
    return true;
  };
  for (const Bytes& parcel : parcels)
    if (!reader.read(parcel, take)) return false;
  return !open;
}

TEST(Parcel, WhatIsWrittenIsRead) {
  constexpr size_t kCapacity = 100;
  constexpr size_t kFits = kCapacity - sizeof(ParcelFields) - sizeof(MessageFields);
  for (const auto& messages :
       {messages_of({0}), messages_of({8}), messages_of({kFits - 1}), messages_of({kFits}),
        messages_of({kFits + 1}), messages_of({5000}), messages_of({0, 0}),
        messages_of({8, 496, 0, 3}), messages_of({kFits, 0, 1}), messages_of({kFits - 1, 300, 7}),
        messages_of({kFits - sizeof(MessageFields), 0, 9}),
        messages_of({kFits - sizeof(MessageFields) + 1, 0, 9})}) {
    const auto parcels = write(messages, kCapacity);
    for (const Bytes& parcel : parcels) EXPECT_LE(parcel.size(), kCapacity);
    std::vector<Bytes> out;
    EXPECT_TRUE(read(parcels, out));
    EXPECT_EQ(out, messages);
    EXPECT_EQ(write(messages, 1 << 20).size(), 1u);
  }
}

TEST(Parcel, WhatLiesBehindIsNotRead) {
  const auto messages = messages_of({40, 100, 3});
  auto parcels = write(messages, 1000);
  parcels[0].resize(1000);
  std::vector<Bytes> out;
  EXPECT_TRUE(read(parcels, out));
  EXPECT_EQ(out, messages);
}

TEST(Parcel, StopsWhereItIsTold) {
  const auto parcels = write(messages_of({8, 9, 10}), 1000);
  int taken = 0;
  ParcelReader reader;
  EXPECT_TRUE(reader.read(parcels[0], [&](const auto&) { return ++taken < 2; }));
  EXPECT_EQ(taken, 2);
}

TEST(Parcel, WhatIsNoneIsRefused) {
  const auto good = write(messages_of({40, 100, 3}), 1000);
  std::vector<Bytes> out;
  EXPECT_TRUE(read(good, out));
  for (size_t size = 0; size < good[0].size(); ++size) {
    auto cut = good;
    cut[0].resize(size);
    EXPECT_FALSE(read(cut, out)) << size;
  }
  const auto altered = [&](auto change) {
    auto other = good;
    ParcelFields fields;
    std::memcpy(&fields, other[0].data(), sizeof fields);
    change(fields);
    std::memcpy(other[0].data(), &fields, sizeof fields);
    return read(other, out);
  };
  EXPECT_TRUE(altered([](ParcelFields&) {}));
  EXPECT_FALSE(altered([](ParcelFields& f) { f.magic ^= 1; }));
  for (const uint32_t size : {0u, 23u, 65u, 214u, 216u, ~0u})
    EXPECT_FALSE(altered([=](ParcelFields& f) { f.size = size; })) << size;
}

// Of any size that a message claims to have, no more is taken than came.
TEST(Parcel, ClaimsOfMessagesAreOnlyClaims) {
  for (const uint64_t size : {uint64_t{41}, uint64_t{1} << 40, ~uint64_t{0}}) {
    auto parcels = write(messages_of({40}), 1000);
    MessageFields fields;
    std::memcpy(&fields, parcels[0].data() + sizeof(ParcelFields), sizeof fields);
    fields.size = size;
    std::memcpy(parcels[0].data() + sizeof(ParcelFields), &fields, sizeof fields);
    ParcelReader reader;
    EXPECT_TRUE(reader.read(parcels[0], [&](const ParcelReader::Part& part) {
      EXPECT_EQ(part.bytes.size(), 40u);
      EXPECT_FALSE(part.last);
      return true;
    }));
  }
}

}  // namespace
}  // namespace thinwire
