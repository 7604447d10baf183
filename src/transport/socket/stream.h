// One TCP stream of a connection: reads on its progress thread, writes on whichever thread has something to write.
// Knows how to move frames; when the connection is over is decided by its owner.
#pragma once

#include <atomic>
#include <mutex>

#include "base/fd.h"
#include "cgx/settings.h"
#include "transport/socket/exchange.h"
#include "transport/socket/outbox.h"
#include "transport/socket/reactor.h"
#include "transport/socket/silence.h"
#include "transport/socket/stream_reader.h"

namespace cgx::transport::socket {

class Stream final : public Source {
 public:
  /// What a stream reports upwards; called with no lock held.
  class Owner {
   public:
    virtual void streamEnded(Status reason, bool clean) noexcept = 0;
    virtual void streamFailed(Status why, const Farewell& farewell) noexcept = 0;
    virtual void streamTick(Clock::time_point now) noexcept = 0;
    /// The peer posted receives: any stream may have something to write.
    virtual void sendsMatched() noexcept = 0;

   protected:
    ~Owner() = default;
  };

  Stream(Owner& owner, Exchange& exchange, std::size_t index, Loop& loop, Fd fd, const Settings& settings) noexcept;

  /// From here on the loop calls it.
  Status start() { return loop_.add(*this, fd_.get()); }
  /// Writes what there is: `budgetBytes` here, the rest on the loop. Never blocks.
  /// False: this stream takes nothing now (its socket is full, or it is dead), so another may be better.
  bool pump(std::size_t budgetBytes) noexcept;
  /// The same on the loop.
  void pumpLater() noexcept {
    if (wantsWrite()) loop_.kick(*this);
  }
  /// pump() if this is its loop's thread, else pumpLater().
  void pumpOnLoop() noexcept;
  /// Waits until no thread reads into or writes from posted memory; the exchange has been stopped.
  void quiesce() noexcept;
  /// After quiesce: the last frame, if no other is half written, and the end of our direction.
  void sayGoodbye(const Farewell& farewell) noexcept;
  /// Off the loop for good; the descriptor for the linger list.
  Fd detach() noexcept;

  bool ready(std::uint32_t events) noexcept override;
  bool resumed() noexcept override;
  void tick(Clock::time_point now) noexcept override;

 private:
  enum class Pumped { Idle, Blocked, Budget, Dead, Failed };
  Pumped write(std::size_t budgetBytes, Told& told) noexcept;
  Pumped writeFailed(int sysErrno) noexcept;
  void fill() noexcept;
  ssize_t sendOutbox() noexcept;
  bool readMore() noexcept;
  void tellReceived(Told& told) noexcept;
  bool wantsWrite() const noexcept;

  Owner& owner_;
  Exchange& exchange_;
  Loop& loop_;
  const std::size_t index_;
  const bool checksum_;

  // Who sets it is the only one to write, until it clears it and has looked once more for work: nobody waits, nothing
  // is forgotten.
  std::atomic<bool> pumping_{false};
  std::atomic<bool> pausing_{false};   // the last turn ended with frames left in the outbox
  std::atomic<bool> writable_{false};  // an event said so since the last attempt
  std::atomic<bool> blocked_{false};   // the last attempt found no room
  std::atomic<bool> wrote_{false};     // since the last tick
  std::atomic<bool> heartbeatDue_{false};

  std::mutex writing_;  // guards fd_ for writing, outbox_, writeDead_
  Outbox outbox_;
  bool writeDead_ = false;
  int writeErrno_ = 0;

  std::mutex reading_;  // guards fd_ for reading, reader_, readEnded_
  StreamReader reader_;
  bool readEnded_ = false;

  bool toTheEnd_ = false;  // an event announced the end of the stream; the loop's thread only, like what follows
  bool readAgain_ = false;
  SilenceWatch silence_;
  Fd fd_;
};

}  // namespace cgx::transport::socket
