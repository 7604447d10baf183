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
};

class SilenceWatch {
 public:
  enum class Verdict { Fine, WindowClosed, Dead };
  explicit SilenceWatch(const Settings& settings) noexcept;

  /// Call about once a second. `Dead`: nothing was acknowledged for the peer timeout although something should have
  /// been.
  ///
  /// TCP_USER_TIMEOUT alone is not enough: Linux also counts it against a peer whose window stays closed, acknowledging
  /// every probe, which is what a stopped process looks like. It is switched off for as long as that lasts.
  Verdict judge(const LinkState& state) noexcept;
  /// judge() on a socket, adjusting its user timeout.
  Verdict look(int fd) noexcept;

  /// True about four times in each peer timeout if nothing was written: something must be unacknowledged for silence to
  /// be noticed.
  bool heartbeatDue(bool wrote, Clock::time_point now) noexcept;

 private:
  std::uint32_t limitMs_;
  Clock::duration heartbeat_;
  Clock::time_point lastWrite_ = Clock::now();
  bool suspicious_ = false;
  bool timeoutOff_ = false;
};

}  // namespace cgx::transport::socket
