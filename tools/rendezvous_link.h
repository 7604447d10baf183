// One rendezvous connection: frames of a kind and a text over a non-blocking socket. Knows no ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cgx/status.h"

namespace cgx::tool {

enum class FrameKind : std::uint32_t {
  Hello = 0x5f584743,  // "CGX_": a stranger's first bytes are something else
  Data,                // a rank's part of an all-gather, or rank 0's answer
  Failed,              // text: why the sender gives up
};

struct Frame {
  FrameKind kind = FrameKind::Data;
  std::string text;
};

class Link {
 public:
  explicit Link(int fd) : fd_(fd) {}  // non-blocking; owned
  Link(Link&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), received_(std::move(other.received_)), ended_(other.ended_) {}
  Link& operator=(Link&& other) noexcept {
    std::swap(fd_, other.fd_);
    received_ = std::move(other.received_);
    ended_ = other.ended_;
    return *this;
  }
  ~Link();

  int fd() const { return fd_; }
  /// Takes in what has arrived. False once the peer has gone; frames that came before can still be taken.
  bool pump();
  /// The oldest complete frame. A malformed one counts as the peer gone.
  std::optional<Frame> next();
  bool ended() const { return ended_; }
  /// Frames are small; waits at most a few seconds for room.
  Status send(FrameKind kind, std::string_view text);

 private:
  int fd_;
  std::string received_;
  bool ended_ = false;
};

}  // namespace cgx::tool
