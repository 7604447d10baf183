// Every length and field is checked before it is used: what arrives here may come from anybody who found the port.
#include "transport/handshake.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/checksum.h"

namespace cgx::transport {
namespace {

constexpr std::size_t kPrefixBytes = sizeof(wire::Prefix);
constexpr std::size_t kMaxHello = sizeof(wire::Hello) + kMaxHelloBytes;
constexpr std::size_t kMaxReply = sizeof(wire::Reply) + wire::kMaxTextBytes;
// A hello of another version may be longer than ours; it is read to its end so that closing the socket does not reset
// it (unread bytes do that) before the dialer has read why it was refused.
constexpr std::size_t kMaxForeignHello = 4096;

Status readTo(ByteStream& stream, std::span<std::byte> all, std::size_t& done) {
  while (done < all.size()) {
    Result<std::size_t> n = stream.read(all.subspan(done));
    if (!n.ok()) return std::move(n).status();
    done += n.value();
  }
  return {};
}

Status writeAll(ByteStream& stream, std::span<const std::byte> all, std::size_t& done) {
  while (done < all.size()) {
    Result<std::size_t> n = stream.write(all.subspan(done));
    if (!n.ok()) return std::move(n).status();
    done += n.value();
  }
  return {};
}

std::string versions(unsigned peer) {
  return "the peer speaks version " + std::to_string(peer) + " of the link protocol, this side version " +
         std::to_string(wire::kVersion) + ": install the same release on all hosts";
}

template <class T>
T load(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

bool isZero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

const char* roleName(unsigned role) {
  if (role == static_cast<unsigned>(Role::Net)) return "net";
  if (role == static_cast<unsigned>(Role::Collective)) return "collective";
  return "unknown";
}

/// Of the whole message with the field of the checksum, the last eight bytes of the header, as zero.
std::uint64_t messageChecksum(std::span<const std::byte> message, std::size_t headBytes) {
  std::array<std::byte, std::max(kMaxHello, kMaxReply)> copy;
  std::memcpy(copy.data(), message.data(), message.size());
  std::memset(copy.data() + headBytes - sizeof(std::uint64_t), 0, sizeof(std::uint64_t));
  return checksumOf(std::span(copy).first(message.size()));
}

}  // namespace

Result<Nonce> randomNonce() {
  Nonce nonce;
  std::size_t done = 0;
  while (done < nonce.size()) {
    const ssize_t n = ::getrandom(nonce.data() + done, nonce.size() - done, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status::system("getrandom", errno);
    done += static_cast<std::size_t>(n);
  }
  return nonce;
}

Handle encodeHandle(wire::Handle fields) noexcept {
  fields.magic = wire::kHandleMagic;
  fields.version = wire::kVersion;
  fields.zero = {};
  fields.checksum = headChecksum(fields);
  return std::bit_cast<Handle>(fields);
}

Result<wire::Handle> decodeHandle(const Handle& handle) {
  const auto fields = std::bit_cast<wire::Handle>(handle);
  if (isZero(handle))
    return Status::invalid("connection handle is all zero: listen was not called, or its handle was not passed on");
  if (fields.magic != wire::kHandleMagic) {
    return Status::invalid("connection handle is not from this plugin: does every rank load the same network plugin?");
  }
  if (fields.version != wire::kVersion) return Status::invalid("connection handle: " + versions(fields.version));
  if (fields.checksum != headChecksum(fields))
    return Status::invalid("connection handle is damaged: its checksum does not match");
  if (fields.family != wire::kIpv4 && fields.family != wire::kIpv6) {
    return Status::invalid("connection handle has address family " + std::to_string(fields.family) +
                           ", expected 4 or 6");
  }
  if (fields.port == 0) return Status::invalid("connection handle has port 0");
  return fields;
}

DialHandshake::DialHandshake(const Introduction& introduction) noexcept {
  const std::span<const std::byte> user = introduction.user.first(std::min(introduction.user.size(), kMaxHelloBytes));
  helloBytes_ = sizeof(wire::Hello) + user.size();
  wire::Hello hello{};
  hello.prefix = {wire::kHelloMagic, wire::kVersion, static_cast<std::uint16_t>(helloBytes_), 0};
  hello.nonce = introduction.nonce;
  hello.connection = introduction.connection;
  hello.role = static_cast<std::uint16_t>(introduction.role);
  hello.stream = introduction.stream;
  hello.streams = introduction.streams;
  hello.userBytes = static_cast<std::uint16_t>(user.size());
  std::memcpy(hello_.data(), &hello, sizeof hello);
  if (!user.empty()) std::memcpy(hello_.data() + sizeof hello, user.data(), user.size());
  hello.checksum = messageChecksum(std::span(hello_).first(helloBytes_), sizeof hello);
  std::memcpy(hello_.data(), &hello, sizeof hello);
}

Status DialHandshake::progress(ByteStream& stream) {
  for (;;) {
    switch (state_) {
      case State::SendHello:
        CGX_TRY(writeAll(stream, std::span(hello_).first(helloBytes_), done_));
        done_ = 0;
        state_ = State::ReadPrefix;
        break;
      case State::ReadPrefix:
        CGX_TRY(readTo(stream, std::span(reply_).first(kPrefixBytes), done_));
        CGX_TRY(checkPrefix());
        state_ = State::ReadRest;
        break;
      case State::ReadRest:
        CGX_TRY(readTo(stream, std::span(reply_).first(load<wire::Prefix>(reply_).bytes), done_));
        CGX_TRY(judge());
        state_ = State::Welcome;
        break;
      case State::Welcome:
        return {};
    }
  }
}

Status DialHandshake::checkPrefix() {
  const auto prefix = load<wire::Prefix>(reply_);
  if (prefix.magic != wire::kReplyMagic) return Status::remote("the peer's answer is not of this protocol");
  if (prefix.version != wire::kVersion) return Status::remote(versions(prefix.version));
  if (prefix.bytes < sizeof(wire::Reply) || prefix.bytes > kMaxReply || prefix.zero != 0) {
    return Status::remote("malformed reply: length " + std::to_string(prefix.bytes));
  }
  return {};
}

Status DialHandshake::judge() {
  const auto reply = load<wire::Reply>(reply_);
  const std::span<const std::byte> all = std::span(reply_).first(reply.prefix.bytes);
  if (reply.checksum != messageChecksum(all, sizeof reply))
    return Status::remote("malformed reply: checksum does not match");
  if (sizeof reply + reply.textBytes != all.size()) {
    return Status::remote("malformed reply: text of " + std::to_string(reply.textBytes) + " bytes in a message of " +
                          std::to_string(all.size()));
  }
  if (reply.verdict == static_cast<std::uint16_t>(wire::Answer::Welcome)) return {};
  std::string text(reply.textBytes, '\0');
  std::memcpy(text.data(), all.data() + sizeof reply, text.size());
  // It goes to logs and terminals: no control characters from a peer.
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return Status::remote("the peer refused: " + text);
}

Status AcceptHandshake::progress(ByteStream& stream) {
  const auto head = std::as_writable_bytes(std::span(&hello_, 1));
  for (;;) {
    switch (state_) {
      case State::ReadPrefix:
        CGX_TRY(readTo(stream, head.first(kPrefixBytes), done_));
        CGX_TRY(checkPrefix());
        break;
      case State::ReadRest: {
        const std::size_t bytes = hello_.prefix.bytes;
        if (done_ < sizeof hello_) CGX_TRY(readTo(stream, head, done_));
        std::size_t userDone = done_ - sizeof hello_;
        const Status read = readTo(stream, std::span(rest_).first(bytes - sizeof hello_), userDone);
        done_ = sizeof hello_ + userDone;
        CGX_TRY(read);
        judge();
        break;
      }
      case State::Skip:
        CGX_TRY(skip(stream));
        answer(versions(hello_.prefix.version));
        break;
      case State::SendReply:
        CGX_TRY(writeAll(stream, std::span(reply_).first(replyBytes_), done_));
        state_ = State::Done;
        break;
      case State::Done:
        return refusal_.empty() ? Status() : Status::remote("refused a dialer: " + refusal_);
    }
  }
}

Status AcceptHandshake::checkPrefix() {
  const wire::Prefix& prefix = hello_.prefix;
  if (prefix.magic != wire::kHelloMagic) {
    return Status::remote("a stranger: what it sent is not of this protocol (another plugin, a scanner?)");
  }
  if (prefix.version != wire::kVersion) {
    if (prefix.bytes < kPrefixBytes || prefix.bytes > kMaxForeignHello) return Status::remote(versions(prefix.version));
    state_ = State::Skip;
    return {};
  }
  if (prefix.bytes < sizeof hello_ || prefix.bytes > kMaxHello || prefix.zero != 0) {
    return Status::remote("malformed hello: length " + std::to_string(prefix.bytes));
  }
  state_ = State::ReadRest;
  return {};
}

Status AcceptHandshake::skip(ByteStream& stream) {
  while (done_ < hello_.prefix.bytes) {
    const std::size_t want = std::min<std::size_t>(rest_.size(), hello_.prefix.bytes - done_);
    Result<std::size_t> n = stream.read(std::span(rest_).first(want));
    if (!n.ok()) return std::move(n).status();
    done_ += n.value();
  }
  return {};
}

void AcceptHandshake::judge() {
  std::array<std::byte, kMaxHello> all;
  const std::size_t bytes = hello_.prefix.bytes;
  std::memcpy(all.data(), &hello_, sizeof hello_);
  std::memcpy(all.data() + sizeof hello_, rest_.data(), bytes - sizeof hello_);
  if (hello_.checksum != messageChecksum(std::span(all).first(bytes), sizeof hello_))
    return answer("the hello's checksum does not match");
  if (sizeof hello_ + hello_.userBytes != bytes) return answer("the hello's lengths do not add up");
  if (hello_.nonce != nonce_) return answer("the handle is not this listener's (left over from another job?)");
  if (hello_.role != static_cast<std::uint16_t>(role_)) {
    return answer(std::string("a ") + roleName(hello_.role) + " dialer came to a " +
                  roleName(static_cast<unsigned>(role_)) + " listener");
  }
  if (hello_.streams < 1 || hello_.streams > wire::kMaxStreams || hello_.stream >= hello_.streams) {
    return answer("stream " + std::to_string(hello_.stream) + " of " + std::to_string(hello_.streams) + ", at most " +
                  std::to_string(wire::kMaxStreams));
  }
  answer({});
}

void AcceptHandshake::answer(std::string refusal) {
  refusal_ = std::move(refusal);
  const std::size_t textBytes = std::min(refusal_.size(), wire::kMaxTextBytes);
  replyBytes_ = sizeof(wire::Reply) + textBytes;
  wire::Reply reply{};
  reply.prefix = {wire::kReplyMagic, wire::kVersion, static_cast<std::uint16_t>(replyBytes_), 0};
  reply.verdict = static_cast<std::uint16_t>(refusal_.empty() ? wire::Answer::Welcome : wire::Answer::Refused);
  reply.textBytes = static_cast<std::uint16_t>(textBytes);
  std::memcpy(reply_.data(), &reply, sizeof reply);
  std::memcpy(reply_.data() + sizeof reply, refusal_.data(), textBytes);
  reply.checksum = messageChecksum(std::span(reply_).first(replyBytes_), sizeof reply);
  std::memcpy(reply_.data(), &reply, sizeof reply);
  done_ = 0;
  state_ = State::SendReply;
}

}  // namespace cgx::transport
