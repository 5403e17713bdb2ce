// Stateful::held_bytes of every memory is what the memory has allocated, as a count of all memory
// that this program takes tells.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "core/testing/test_name.h"
#include "feedback/testing/feedback_testing.h"
#include "thinwire/store.h"

namespace {
std::atomic<size_t> taken{0};  // bytes that are allocated

void* count_in(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  taken += malloc_usable_size(memory);
  return memory;
}
void count_out(void* memory) noexcept {
  taken -= malloc_usable_size(memory);
  std::free(memory);
}
}  // namespace

void* operator new(size_t size) { return count_in(std::malloc(size)); }
void* operator new(size_t size, std::align_val_t alignment) {
  const auto to = static_cast<size_t>(alignment);
  return count_in(std::aligned_alloc(to, (size + to - 1) / to * to));
}
void operator delete(void* memory) noexcept { count_out(memory); }
void operator delete(void* memory, size_t /*size*/) noexcept { count_out(memory); }
void operator delete(void* memory, std::align_val_t /*to*/) noexcept { count_out(memory); }
void operator delete(void* memory, size_t /*size*/, std::align_val_t /*to*/) noexcept {
  count_out(memory);
}

namespace thinwire::testing {
namespace {

constexpr size_t kMany = 500'000;

std::unique_ptr<Feedback> stepped(const std::string& memory, const Values& gradient) {
  auto made = make(memory, kMany);
  for (uint64_t number = 0; number < 2; ++number) {
    (void)made->prepare(gradient, {.step = number});
    if (!made->rest().empty()) send_some(made->rest(), number);
    made->sent(gradient, 0, gradient.size());
    Values mean = gradient;
    made->receive(mean);
    made->commit();
  }
  return made;
}

class HeldBytes : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Registry, HeldBytes, ::testing::ValuesIn(feedback_variants()),
                         [](const auto& row) { return test_name(row.param); });

// The first memory is there so that buffers which all memories share exist already.
TEST_P(HeldBytes, AreWhatIsAllocated) {
  const Values values = gradient(0, 0, kMany);
  const auto first = stepped(GetParam(), values);
  const size_t before = taken;
  const auto second = stepped(GetParam(), values);
  const auto allocated = static_cast<double>(taken - before);
  EXPECT_NEAR(static_cast<double>(second->held_bytes()), allocated, 0.01 * allocated + 4096);
}

TEST(HeldBytesOfAStore, AreThoseOfItsObjects) {
  Store store;
  EXPECT_EQ(store.held_bytes(), 0u);
  store.open<Feedback>("a", [] { return make("residual", 100); });
  store.open<Feedback>("b", [] { return make("ef21", 100); });
  EXPECT_EQ(store.held_bytes(), 100u * (8 + 12));
}

}  // namespace
}  // namespace thinwire::testing
