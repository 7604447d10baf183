// Thresholds against false alarms are explained where they are.
#include "transport/socket/silence.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "transport/socket/socket_stream.h"

namespace cgx::transport::socket {

SilenceWatch::SilenceWatch(const Settings& settings) noexcept
    : limitMs_(static_cast<std::uint32_t>(settings.peerTimeout * 1000)),
      heartbeat_(std::chrono::milliseconds(std::max<std::uint32_t>(limitMs_ / 4, 250))) {}

SilenceWatch::Verdict SilenceWatch::judge(const LinkState& state, Clock::time_point now) noexcept {
  const bool sentSince = state.unackedSegments > 0 && state.sinceLastSendMs < state.sinceLastAckMs;
  const bool before = std::exchange(unanswered_, sentSince || state.unansweredProbes > 0);
  if (!before) unansweredSince_ = now;
  const bool silent =
      unanswered_ && state.sinceLastAckMs > limitMs_ && now - unansweredSince_ > std::chrono::milliseconds(limitMs_);
  // Twice in a row: after a long pause of this process the first look can fall between a segment and its
  // acknowledgement.
  if (silent && std::exchange(suspicious_, true)) return Verdict::Dead;
  suspicious_ = silent;
  const bool windowClosed = state.unackedSegments == 0 && state.unsentBytes > 0;
  const bool refused = state.unackedSegments > 0 && state.retransmits > 0 && !unanswered_;
  return windowClosed || refused ? Verdict::Late : Verdict::Fine;
}

SilenceWatch::Verdict SilenceWatch::look(int fd) noexcept {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return Verdict::Fine;
  const Verdict verdict = judge({info.tcpi_unacked, info.tcpi_notsent_bytes, info.tcpi_probes, info.tcpi_last_ack_recv,
                                 info.tcpi_last_data_sent, info.tcpi_retransmits},
                                Clock::now());
  if (const bool off = verdict == Verdict::Late; off != timeoutOff_) {
    timeoutOff_ = off;
    setUserTimeout(fd, off ? 0 : limitMs_);
  }
  return verdict;
}

bool SilenceWatch::heartbeatDue(bool wrote, Clock::time_point now) noexcept {
  if (!wrote && now - lastWrite_ < heartbeat_) return false;
  lastWrite_ = now;
  return !wrote;
}

}  // namespace cgx::transport::socket
