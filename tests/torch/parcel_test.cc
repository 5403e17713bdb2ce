// Parcels of messages: what is packed comes out, and what is no parcel is refused.
// SPDX-License-Identifier: Apache-2.0
#include "comm/c10d/parcel.h"

#include <gtest/gtest.h>

#include <cstring>

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

// Head and body as they would arrive.
struct Arrived {
  Bytes head, behind;  // the head; all behind the first message's fields
};

Arrived pack(const std::vector<Bytes>& messages) {
  std::vector<MessageView> views;
  for (size_t i = 0; i < messages.size(); ++i)
    views.push_back({.fields = {.context = i, .size = messages[i].size(), .tag = int32_t(i) + 5},
                     .bytes = messages[i]});
  const PackedParcel parcel = pack_parcel(views);
  EXPECT_EQ(parcel.head.size(), kHeadSize);
  ParcelFields fields;
  MessageFields first;
  EXPECT_TRUE(read_head(parcel.head, fields, first));
  EXPECT_EQ(fields.messages, messages.size());
  const auto behind = std::span(parcel.head).subspan(sizeof fields + sizeof first);
  const size_t size = fields.size - sizeof first;
  Arrived arrived{.head = parcel.head, .behind = {}};
  arrived.behind.assign(behind.begin(), behind.begin() + ptrdiff_t(std::min(size, behind.size())));
  arrived.behind.insert(arrived.behind.end(), parcel.rest.begin(), parcel.rest.end());
  EXPECT_EQ(arrived.behind.size(), size);
  return arrived;
}

bool unpack(const Arrived& arrived, std::vector<Bytes>& out) {
  ParcelFields fields;
  MessageFields first;
  if (!read_head(arrived.head, fields, first)) return false;
  return unpack_parcel(fields, first, arrived.behind, [&](const MessageFields& one, auto bytes) {
    EXPECT_EQ(one.size, bytes.size());
    out.emplace_back(bytes.begin(), bytes.end());
    return true;
  });
}

TEST(Parcel, WhatIsPackedComesOut) {
  constexpr size_t kFits = kInline - sizeof(MessageFields);  // with its fields, into the head
  for (const auto& messages :
       {messages_of({0}), messages_of({8}), messages_of({kFits - 1}), messages_of({kFits}),
        messages_of({kFits + 1}), messages_of({5000}), messages_of({0, 0}),
        messages_of({8, 496, 0, 3}), messages_of({kFits, 1}), messages_of({kFits - 1, 30000, 7})}) {
    std::vector<Bytes> out;
    EXPECT_TRUE(unpack(pack(messages), out));
    EXPECT_EQ(out, messages);
  }
}

TEST(Parcel, StopsWhereItIsTold) {
  const Arrived arrived = pack(messages_of({8, 9, 10}));
  ParcelFields fields;
  MessageFields first;
  ASSERT_TRUE(read_head(arrived.head, fields, first));
  int taken = 0;
  EXPECT_TRUE(
      unpack_parcel(fields, first, arrived.behind, [&](const auto&, auto) { return ++taken < 2; }));
  EXPECT_EQ(taken, 2);
}

// Every length, and every field with another value, is refused or gives bytes within what came.
TEST(Parcel, WhatIsNoneIsRefused) {
  const Arrived good = pack(messages_of({40, 100, 3}));
  std::vector<Bytes> out;
  for (size_t size = 0; size < good.behind.size(); ++size) {
    Arrived cut = good;
    cut.behind.resize(size);
    EXPECT_FALSE(unpack(cut, out)) << size;
  }
  Arrived longer = good;
  longer.behind.resize(good.behind.size() + 1);
  EXPECT_FALSE(unpack(longer, out));

  const auto altered = [&](auto change) {
    Arrived other = good;
    ParcelFields fields;
    MessageFields first;
    std::memcpy(&fields, other.head.data(), sizeof fields);
    std::memcpy(&first, other.head.data() + sizeof fields, sizeof first);
    change(fields, first);
    std::memcpy(other.head.data(), &fields, sizeof fields);
    std::memcpy(other.head.data() + sizeof fields, &first, sizeof first);
    return unpack(other, out);
  };
  EXPECT_TRUE(altered([](ParcelFields&, MessageFields&) {}));
  EXPECT_FALSE(altered([](ParcelFields& f, MessageFields&) { f.magic ^= 1; }));
  for (const uint32_t count : {0u, 1u, 2u, 4u, ~0u})
    EXPECT_FALSE(altered([=](ParcelFields& f, MessageFields&) { f.messages = count; })) << count;
  for (const uint64_t size : {uint64_t{0}, uint64_t{23}, uint64_t{kParcel + 1}, ~uint64_t{0}})
    EXPECT_FALSE(altered([=](ParcelFields& f, MessageFields&) { f.size = size; })) << size;
  for (const uint64_t size : {uint64_t{0}, uint64_t{41}, uint64_t{1000}, ~uint64_t{0}})
    EXPECT_FALSE(altered([=](ParcelFields&, MessageFields& m) { m.size = size; })) << size;
}

}  // namespace
}  // namespace thinwire
