// A parser that trusts nothing: what it cannot place ends the connection.
#include "transport/socket/stream_reader.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/fd.h"
#include "transport/checksum.h"
#include "transport/socket/socket_stream.h"

namespace cgx::transport::socket {
namespace {

// After this much from one stream the others of the loop get their turn.
constexpr std::size_t kTurnBytes = 4 << 20;

constexpr wire::FrameType typeOf(const wire::Frame& frame) { return static_cast<wire::FrameType>(frame.type); }

std::string describe(const wire::Frame& frame) {
  return "type " + std::to_string(frame.type) + ", receive " + std::to_string(frame.receive) + ", length " +
         std::to_string(frame.length);
}

std::size_t lengthLimit(const wire::Frame& frame) {
  switch (typeOf(frame)) {
    case wire::FrameType::Posted:
      return kMaxGroup * sizeof(wire::PostedSlot);
    case wire::FrameType::Data:
      return wire::kMaxChunkBytes;
    case wire::FrameType::Bye:
      return wire::kMaxTextBytes;
    case wire::FrameType::Heartbeat:
    case wire::FrameType::TooLong:
      return 0;
  }
  return 0;
}

}  // namespace

bool StreamReader::stop(Reading::What what, Status status) {
  result_.what = what;
  result_.status = std::move(status);
  return false;
}

Reading StreamReader::readingOf(Reading::What what, Status status) {
  stop(what, std::move(status));
  return std::exchange(result_, {});
}

Reading StreamReader::step(int fd, bool toTheEnd, Exchange& exchange, Told& told) {
  bool exhausted = false;
  for (std::size_t turn = 0; turn < kTurnBytes && !exchange.stopped();) {
    const Parse parsed = parse(exchange, told);
    if (parsed == Parse::Stop) return std::exchange(result_, {});
    if (parsed == Parse::TellFirst) return readingOf(Reading::What::More);
    if (exhausted) return readingOf(Reading::What::Blocked);
    std::memmove(inbox_.data(), inbox_.data() + begin_, available());
    end_ = available();
    begin_ = 0;
    const std::size_t direct = payload_ != nullptr ? frame_.length - payloadDone_ : 0;
    const std::size_t spare = inbox_.size() - end_;
    std::array<iovec, 2> parts{
        {{payload_ != nullptr ? payload_ + payloadDone_ : nullptr, direct}, {inbox_.data() + end_, spare}}};
    msghdr message{};
    message.msg_iov = direct > 0 ? parts.data() : parts.data() + 1;
    message.msg_iovlen = direct > 0 ? 2 : 1;
    const ssize_t n = retryEintr([&] { return ::recvmsg(fd, &message, 0); });
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return readingOf(Reading::What::Blocked);
    if (n <= 0) {
      const int failed = n == 0 ? ECONNRESET : errno;
      if (n < 0 && !isPeerLoss(failed)) return readingOf(Reading::What::Broken, Status::system("read", failed));
      return readingOf(Reading::What::Ended,
                       n == 0
                           ? Status(Code::Remote, "the peer went away without a goodbye (killed or crashed?)", failed)
                           : Status(Code::Remote, Status::system("connection lost", failed).text(), failed));
    }
    const auto got = static_cast<std::size_t>(n);
    payloadDone_ += std::min(got, direct);
    end_ += got - std::min(got, direct);
    turn += got;
    exhausted = got < direct + spare && !toTheEnd;
  }
  return readingOf(Reading::What::More);
}

StreamReader::Parse StreamReader::parse(Exchange& exchange, Told& told) {
  for (;;) {
    if (inFrame_ && typeOf(frame_) == wire::FrameType::Data) {
      const std::size_t n = std::min(available(), frame_.length - payloadDone_);
      if (n > 0) std::memcpy(payload_ + payloadDone_, inbox_.data() + begin_, n);
      payloadDone_ += n;
      begin_ += n;
      if (payloadDone_ < frame_.length) return Parse::NeedBytes;
      if (!finishData(exchange, told)) return Parse::Stop;
      if (told.lacksRoom(1)) return Parse::TellFirst;
    } else if (inFrame_) {
      if (available() < frame_.length) return Parse::NeedBytes;
      const std::span payload(inbox_.data() + begin_, frame_.length);
      begin_ += frame_.length;
      inFrame_ = false;
      if (!takeControl(exchange, payload)) return Parse::Stop;
    } else {
      if (available() < sizeof frame_) return Parse::NeedBytes;
      if (!takeHeader(exchange)) return Parse::Stop;
    }
  }
}

bool StreamReader::checkHeader() const {
  const auto type = typeOf(frame_);
  if (frame_.magic != wire::kFrameMagic || frame_.checksum != headChecksum(frame_)) return false;
  if (type < wire::FrameType::Posted || type > wire::FrameType::TooLong) return false;
  return frame_.length <= lengthLimit(frame_);
}

bool StreamReader::takeHeader(Exchange& exchange) {
  std::memcpy(&frame_, inbox_.data() + begin_, sizeof frame_);
  begin_ += sizeof frame_;
  if (!checkHeader()) {
    return stop(Reading::What::Broken,
                Status::remote("the connection is corrupt: a frame header does not add up (" + describe(frame_) + ")"));
  }
  inFrame_ = true;
  payloadDone_ = 0;
  payload_ = nullptr;
  if (typeOf(frame_) != wire::FrameType::Data) return true;
  Result<std::byte*> where = exchange.place(frame_);
  if (!where.ok()) return stop(Reading::What::Broken, std::move(where).status());
  payload_ = where.value();
  return true;
}

bool StreamReader::finishData(Exchange& exchange, Told& told) {
  if ((frame_.flags & wire::kFlagChecksum) != 0 && checksumOf({payload_, frame_.length}) != frame_.payloadChecksum) {
    return stop(Reading::What::Broken,
                Status::remote("data was corrupted on the way: checksum of " + std::to_string(frame_.length) +
                               " bytes at offset " + std::to_string(frame_.offset) + " does not match"));
  }
  told.add(exchange.arrived(frame_));
  inFrame_ = false;
  payload_ = nullptr;
  return true;
}

bool StreamReader::takeControl(Exchange& exchange, std::span<const std::byte> payload) {
  if ((frame_.flags & wire::kFlagChecksum) != 0 && checksumOf(payload) != frame_.payloadChecksum) {
    return stop(Reading::What::Broken,
                Status::remote("the connection is corrupt: the payload of a control frame does not add up"));
  }
  switch (typeOf(frame_)) {
    case wire::FrameType::Posted:
      return takePosted(exchange, payload);
    case wire::FrameType::Bye: {
      std::string text(payload.size(), '\0');
      std::transform(payload.begin(), payload.end(), text.begin(), [](std::byte b) {
        const auto c = static_cast<unsigned char>(b);
        return c < 0x20 ? ' ' : static_cast<char>(c);  // it goes to logs and terminals
      });
      result_.clean = text.empty();
      return stop(Reading::What::Ended,
                  Status::remote(text.empty() ? "closed by the peer" : "the peer gave up: " + text));
    }
    case wire::FrameType::TooLong:
      return stop(Reading::What::Ended, exchange.tooLong(frame_));
    case wire::FrameType::Heartbeat:
    case wire::FrameType::Data:
      break;
  }
  return true;
}

bool StreamReader::takePosted(Exchange& exchange, std::span<const std::byte> payload) {
  std::array<wire::PostedSlot, kMaxGroup> slots;
  const std::size_t count = payload.size() / sizeof(wire::PostedSlot);
  if (index_ != 0 || payload.size() % sizeof(wire::PostedSlot) != 0) {
    return stop(Reading::What::Broken, Status::remote("the peer broke the protocol: " + describe(frame_) +
                                                      " on stream " + std::to_string(index_)));
  }
  std::memcpy(slots.data(), payload.data(), payload.size());
  Status status = exchange.announced(frame_.receive, std::span(slots).first(count), result_.misfit);
  result_.announced = true;
  if (status.ok()) return true;
  const bool tooLong = status.code() == Code::Invalid;
  return stop(tooLong ? Reading::What::TooLong : Reading::What::Broken, std::move(status));
}

}  // namespace cgx::transport::socket
