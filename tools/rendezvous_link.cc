#include "rendezvous_link.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace cgx::tool {
namespace {

constexpr std::size_t kHeadBytes = 8;               // kind, length
constexpr std::uint32_t kMaxTextBytes = 16u << 20;  // handles of thousands of ranks are far below it
constexpr int kSendTimeoutMs = 5000;

}  // namespace

Link::~Link() {
  if (fd_ >= 0) ::close(fd_);
}

bool Link::pump() {
  char some[4096];
  while (!ended_) {
    const ssize_t got = ::recv(fd_, some, sizeof some, MSG_DONTWAIT);
    if (got > 0) {
      received_.append(some, static_cast<std::size_t>(got));
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    ended_ = true;
  }
  return !ended_;
}

std::optional<Frame> Link::next() {
  if (received_.size() < kHeadBytes) return std::nullopt;
  std::uint32_t kind = 0;
  std::uint32_t length = 0;
  std::memcpy(&kind, received_.data(), 4);
  std::memcpy(&length, received_.data() + 4, 4);
  const bool known =
      kind >= static_cast<std::uint32_t>(FrameKind::Hello) && kind <= static_cast<std::uint32_t>(FrameKind::Failed);
  if (!known || length > kMaxTextBytes) {
    ended_ = true;
    received_.clear();
    return std::nullopt;
  }
  if (received_.size() < kHeadBytes + length) return std::nullopt;
  Frame frame{static_cast<FrameKind>(kind), received_.substr(kHeadBytes, length)};
  received_.erase(0, kHeadBytes + length);
  return frame;
}

Status Link::send(FrameKind kind, std::string_view text) {
  std::string bytes(kHeadBytes, '\0');
  const auto number = static_cast<std::uint32_t>(kind);
  const auto length = static_cast<std::uint32_t>(text.size());
  std::memcpy(bytes.data(), &number, 4);
  std::memcpy(bytes.data() + 4, &length, 4);
  bytes.append(text);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t sent = ::send(fd_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      done += static_cast<std::size_t>(sent);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return Status::system("rendezvous", errno);
    pollfd ready{fd_, POLLOUT, 0};
    if (::poll(&ready, 1, kSendTimeoutMs) == 0) return {Code::Timeout, "rendezvous: the peer does not read"};
  }
  return {};
}

}  // namespace cgx::tool
