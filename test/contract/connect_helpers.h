// What tests of connecting share: counts of what a process holds, a round trip, a listener's port.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "cgx/wire_link.h"
#include "contract/transport_fixture.h"
#include "support/tasks.h"

namespace cgx::transport {

inline std::size_t entriesIn(const char* folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}
inline std::size_t openFds() { return entriesIn("/proc/self/fd"); }
inline std::size_t threadCount() { return test::liveThreads().size(); }

/// Until `count()` is `want`: what another thread is about to give up.
template <class Count>
::testing::AssertionResult settlesAt(std::size_t want, Count count) {
  const auto end = Clock::now() + seconds(5);
  while (count() != want && Clock::now() < end) std::this_thread::sleep_for(milliseconds(5));
  const std::size_t got = count();
  return got == want ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << got << " instead of " << want;
}

inline void exchangeBothWays(Connection& a, Connection& b, std::size_t bytes = 10000) {
  const auto data = pattern(bytes, 1);
  std::vector<std::byte> atA(bytes), atB(bytes);
  Waiter sentA, sentB, gotA, gotB;
  const Slot slotA{atA, 0}, slotB{atB, 0};
  ASSERT_TRUE(a.recv({&slotA, 1}, gotA).ok() && b.recv({&slotB, 1}, gotB).ok());
  ASSERT_TRUE(a.send(data, 0, Priority::Normal, sentA).ok() && b.send(data, 0, Priority::Normal, sentB).ok());
  ASSERT_TRUE(gotA.wait() && gotB.wait() && sentA.wait() && sentB.wait());
  ASSERT_TRUE(atA == data && atB == data);
}

inline std::uint16_t portOf(const Handle& handle) { return std::bit_cast<wire::Handle>(handle).port; }

}  // namespace cgx::transport
