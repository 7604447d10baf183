// Lifetimes: see finish() and close(); completions are told with no lock held.
#include "transport/socket/connection.h"

#include <algorithm>
#include <array>
#include <utility>

namespace cgx::transport::socket {
namespace {

// Up to this size the poster writes the message itself, which saves waking a progress thread; longer ones would hold it
// up.
constexpr std::size_t kInlineBytes = 32 << 10;

}  // namespace

SocketConnection::SocketConnection(Reactor::Share reactor, Parts& parts)
    : reactor_(std::move(reactor)),
      peer_(std::move(parts.peer)),
      hello_(std::move(parts.hello)),
      exchange_(parts.streams.size()) {}

Result<std::unique_ptr<Connection>> SocketConnection::create(const Settings& settings, Parts parts) {
  Result<Reactor::Share> reactor = Reactor::acquire(settings);
  if (!reactor.ok()) return std::move(reactor).status();
  std::unique_ptr<SocketConnection> connection(new SocketConnection(std::move(reactor).value(), parts));
  Stream::Owner& owner = *connection;
  for (Fd& fd : parts.streams) {
    connection->streams_.push_back(std::make_unique<Stream>(owner, connection->exchange_, connection->streams_.size(),
                                                            connection->reactor_->pick(), std::move(fd), settings));
  }
  // Only now: a stream that is read may need all the others.
  for (const auto& stream : connection->streams_) CGX_TRY(stream->start());
  return std::unique_ptr<Connection>(std::move(connection));
}

SocketConnection::~SocketConnection() {
  close({});
  // When a completion has closed, the progress thread may still be on its way out of the call that told it.
  for (const auto& stream : streams_) (void)stream->detach();
}

Status SocketConnection::send(std::span<const std::byte> data, int tag, Priority priority, Completion& completion) {
  Misfit misfit;
  Status status = posted(exchange_.postSend(data, tag, priority, completion, misfit), misfit);
  if (!status.ok()) return status;
  for (const auto& stream : streams_) {
    if (data.size() > kInlineBytes) {
      stream->pumpLater();
    } else if (stream->pump(kInlineBytes)) {
      break;  // written, or somebody else is about to
    }
  }
  return {};
}

Status SocketConnection::recv(std::span<const Slot> slots, Completion& completion) {
  Status status = posted(exchange_.postReceive(slots, completion), {});
  if (status.ok()) (void)streams_[0]->pump(kInlineBytes);
  return status;
}

/// Turns what the exchange says to a post into what the poster gets.
Status SocketConnection::posted(Status status, const Misfit& misfit) {
  if (!status.failed() || exchange_.stopped()) return status;
  if (misfit.total > 0) {
    status = std::move(status).within(peer_);
    finish(status, {wire::FrameType::TooLong, misfit, {}});
    return status;
  }
  if (status.code() != Code::Remote) return status;  // a bad argument: the connection is fine
  finish(std::move(status), {});                     // closed by the peer some time ago
  return exchange_.status();
}

void SocketConnection::streamEnded(Status reason, bool clean) noexcept {
  const Clock::time_point now = Clock::now();
  exchange_.streamEnded(std::move(reason).within(peer_), clean, now);
  streamTick(now);
}

void SocketConnection::streamFailed(Status why, const Farewell& farewell) noexcept {
  finish(std::move(why).within(peer_), farewell);
}

void SocketConnection::streamTick(Clock::time_point now) noexcept {
  if (std::optional<Status> end = exchange_.verdict(now)) finish(std::move(*end), {});
}

void SocketConnection::sendsMatched() noexcept {
  for (const auto& stream : streams_) stream->pumpOnLoop();
}

void SocketConnection::finish(Status why, const Farewell& farewell) noexcept {
  {
    const std::lock_guard lock(finishMutex_);
    if (!exchange_.stop(why)) return;
    finisher_ = std::this_thread::get_id();
  }
  for (const auto& stream : streams_) stream->quiesce();
  for (const auto& stream : streams_) stream->sayGoodbye(farewell);
  std::array<Completion*, kMaxSends + kMaxReceives> told;
  std::size_t count = 0;
  exchange_.drain([&](Completion* completion) { told[count++] = completion; });
  for (std::size_t i = 0; i < count; ++i) told[i]->done(told[i], why);
  const std::lock_guard lock(finishMutex_);
  finished_ = true;
  finishedSignal_.notify_all();
}

/// Another thread may be telling completions right now. Not if it is this one: a completion may close.
void SocketConnection::awaitFinish() noexcept {
  std::unique_lock lock(finishMutex_);
  if (finisher_ == std::this_thread::get_id()) return;
  finishedSignal_.wait(lock, [&] { return finished_; });
}

void SocketConnection::close(const Status& why) noexcept {
  if (std::exchange(closed_, true)) return;
  const Farewell farewell{wire::FrameType::Bye, {}, why.text()};
  finish(why.failed() ? why : Status(Code::Remote, peer_ + ": closed by this side"), farewell);
  awaitFinish();
  for (const auto& stream : streams_) {
    Fd fd = stream->detach();
    if (fd.valid()) reactor_->linger(std::move(fd));
  }
}

}  // namespace cgx::transport::socket
