// Tells a dead host from a peer that is merely late. A stopped or busy process still has a kernel that acknowledges; a
// dead host has none. Decides from what the kernel says about a socket; `judge` is pure.
#pragma once

#include <cstdint>

#include "cgx/settings.h"
#include "cgx/transport.h"

namespace cgx::transport::socket {

/// From TCP_INFO, at one moment.
struct LinkState {
  std::uint32_t unackedSegments = 0;
  std::uint32_t unsentBytes = 0;  // 0 < unsent and nothing unacked: the peer's window is closed
  std::uint32_t unansweredProbes = 0;
  std::uint32_t sinceLastAckMs = 0;
  std::uint32_t sinceLastSendMs = 0;
  std::uint32_t retransmits = 0;  // of the oldest unacked segment, so far
};

class SilenceWatch {
 public:
  enum class Verdict { Fine, Late, Dead };
  explicit SilenceWatch(const Settings& settings) noexcept;

  /// Call a few times a second. `Dead`: something has been unanswered for the whole peer timeout. `Late`: the peer does
  /// not read, but its kernel answers: a closed window, or segments that it has no room for, which the own kernel sends
  /// again and again, at last minutes apart. So the time since the last answer says nothing; what counts is a segment
  /// that was sent after it.
  ///
  /// TCP_USER_TIMEOUT alone is not enough: Linux counts it against late peers too. It is switched off for as long as
  /// that lasts.
  Verdict judge(const LinkState& state, Clock::time_point now) noexcept;
  /// judge() on a socket, adjusting its user timeout.
  Verdict look(int fd) noexcept;

  /// True about four times in each peer timeout if nothing was written: something must be unacknowledged for silence to
  /// be noticed.
  bool heartbeatDue(bool wrote, Clock::time_point now) noexcept;

 private:
  std::uint32_t limitMs_;
  Clock::duration heartbeat_;
  Clock::time_point lastWrite_ = Clock::now();
  Clock::time_point unansweredSince_;
  bool unanswered_ = false;
  bool suspicious_ = false;
  bool timeoutOff_ = false;
};

}  // namespace cgx::transport::socket
