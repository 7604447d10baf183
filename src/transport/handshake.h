// Two strangers become the ends of a stream: the dialing and the accepting state machine, and the handle that brings
// them together. Knows the bytes of wire_link.h and a ByteStream; knows no sockets, no threads and no clocks (whoever
// drives it has the deadline).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cgx/status.h"
#include "cgx/transport.h"
#include "cgx/wire_link.h"
#include "transport/byte_stream.h"

namespace cgx::transport {

using Nonce = std::array<std::uint8_t, 16>;

/// From the kernel; System when it has none to give.
Result<Nonce> randomNonce();

/// Fills magic, version and checksum.
Handle encodeHandle(wire::Handle fields) noexcept;
/// Invalid, with the reason, for anything that encodeHandle did not write.
Result<wire::Handle> decodeHandle(const Handle& handle);

/// What a dialer says about itself on one stream.
struct Introduction {
  Nonce nonce{};       // the listener's
  Nonce connection{};  // the same for all streams of a connection
  Role role = Role::Net;
  std::uint16_t stream = 0;
  std::uint16_t streams = 1;
  std::span<const std::byte> user;  // at most kMaxHelloBytes
};

/// Says Hello, awaits Reply. Reads no byte beyond the reply.
class DialHandshake {
 public:
  explicit DialHandshake(const Introduction& introduction) noexcept;
  /// Ok: welcome. Pending: call again. Remote: refused (the text says why) or not one of us. Errors are final.
  Status progress(ByteStream& stream);

 private:
  enum class State { SendHello, ReadPrefix, ReadRest, Welcome };
  Status checkPrefix();
  Status judge();

  State state_ = State::SendHello;
  std::size_t done_ = 0;  // bytes of the current state's message
  std::size_t helloBytes_;
  std::array<std::byte, sizeof(wire::Hello) + kMaxHelloBytes> hello_{};
  std::array<std::byte, sizeof(wire::Reply) + wire::kMaxTextBytes> reply_{};
};

/// Awaits Hello, answers Reply. Reads no byte beyond the hello.
class AcceptHandshake {
 public:
  AcceptHandshake(const Nonce& nonce, Role role) noexcept : nonce_(nonce), role_(role) {}
  /// Ok: welcomed. Pending: call again. Remote: a stranger, or refused after telling it why. Errors are final.
  Status progress(ByteStream& stream);

  /// Valid after Ok.
  const wire::Hello& hello() const noexcept { return hello_; }
  std::span<const std::byte> user() const noexcept { return std::span(rest_).first(hello_.userBytes); }

 private:
  enum class State { ReadPrefix, ReadRest, Skip, SendReply, Done };
  Status checkPrefix();
  void judge();
  void answer(std::string refusal);
  Status skip(ByteStream& stream);

  Nonce nonce_;
  Role role_;
  State state_ = State::ReadPrefix;
  std::size_t done_ = 0;
  std::size_t replyBytes_ = 0;
  std::string refusal_;
  wire::Hello hello_{};
  std::array<std::byte, kMaxHelloBytes> rest_{};
  std::array<std::byte, sizeof(wire::Reply) + wire::kMaxTextBytes> reply_{};
};

}  // namespace cgx::transport
