// The contract of transport.h, part 6: a connection that exists takes no memory from the heap for a message, on any
// thread. This program's allocator counts.
#include <array>
#include <cerrno>
#include <cstdlib>

#include "contract/transport_fixture.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CGX_OWN_ALLOCATOR 1
#else
#define CGX_OWN_ALLOCATOR 0  // the sanitizers have their own
#endif

namespace {

std::atomic<bool> counting{false};
std::atomic<int> allocations{0};

}  // namespace

#if CGX_OWN_ALLOCATOR
// In place of the C library's; operator new comes here too.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) noexcept {
  if (counting) ++allocations;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) noexcept {
  if (counting) ++allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) noexcept {
  if (counting) ++allocations;
  return __libc_realloc(old, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  if (counting) ++allocations;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** out, size_t alignment, size_t bytes) noexcept {
  *out = aligned_alloc(alignment, bytes);
  return *out != nullptr ? 0 : ENOMEM;
}
}
#endif

namespace cgx::transport {
namespace {

constexpr std::size_t kAtOnce = 8;
constexpr std::size_t kBigBytes = 512 << 10;  // goes out in parts on all streams

class TransportAllocations : public TransportContract {
 protected:
  void SetUp() override {
    if (!CGX_OWN_ALLOCATOR) GTEST_SKIP() << "the sanitizer's allocator is in the place of the counting one";
    TransportContract::SetUp();
    connect();
    for (std::size_t i = 0; i < kAtOnce; ++i) data_[i] = pattern(kBigBytes, i), room_[i].resize(kBigBytes);
  }
  void TearDown() override { counting = false; }

  /// Eight messages, received alone or as a group, sent before or after; never an assertion, which might allocate.
  bool exchange(Connection& from, Connection& to, std::size_t bytes, bool grouped, bool sendFirst) {
    for (std::size_t i = 0; i < kAtOnce; ++i) sent_[i].reset(), got_[i].reset();
    if (sendFirst && !send(from, bytes)) return false;
    std::array<Slot, kAtOnce> slots;
    for (std::size_t i = 0; i < kAtOnce; ++i) slots[i] = {std::span(room_[i]).first(bytes), static_cast<int>(i)};
    const std::size_t receives = grouped ? 1 : kAtOnce;
    for (std::size_t i = 0; i < receives; ++i)
      if (!to.recv(std::span(slots).subspan(i, kAtOnce / receives), got_[i]).ok()) return false;
    if (!sendFirst && !send(from, bytes)) return false;
    for (std::size_t i = 0; i < kAtOnce; ++i)
      if (!sent_[i].wait() || !sent_[i].status().ok()) return false;
    for (std::size_t i = 0; i < receives; ++i)
      if (!got_[i].wait() || !got_[i].status().ok()) return false;
    return true;
  }
  bool send(Connection& from, std::size_t bytes) {
    for (std::size_t i = 0; i < kAtOnce; ++i)
      if (!from.send(std::span(data_[i]).first(bytes), static_cast<int>(i), Priority::Normal, sent_[i]).ok())
        return false;
    return true;
  }

  std::array<std::vector<std::byte>, kAtOnce> data_, room_;
  std::array<Waiter, kAtOnce> sent_, got_;
};

TEST_P(TransportAllocations, TenThousandMessagesTakeNoMemory) {
  allocations = 0;
  counting = true;
  bool right = true;
  for (int round = 0; right && round < 1250; ++round) {
    Connection& from = round % 2 == 0 ? *a_ : *b_;
    Connection& to = round % 2 == 0 ? *b_ : *a_;
    const bool big = round % 32 < 2;
    right = exchange(from, to, big ? kBigBytes : static_cast<std::size_t>(round), round % 3 == 0, round % 5 == 0);
  }
  std::this_thread::sleep_for(milliseconds(600));  // two ticks of the progress threads
  const int taken = allocations;
  EXPECT_TRUE(right);
  EXPECT_EQ(taken, 0);
  // The count works.
  void* volatile memory = std::malloc(1);
  std::free(memory);
  const auto* volatile object = new std::string(100, 'x');
  delete object;
  EXPECT_GE(allocations, taken + 3);
  counting = false;
}

INSTANTIATE_TEST_SUITE_P(Transports, TransportAllocations,
                         ::testing::Values(loopbackSocket(1, 1), loopbackSocket(4, 2)), nameOf);

}  // namespace
}  // namespace cgx::transport
