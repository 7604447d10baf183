// Bytes of one stream into posted memory: parses frames, places payloads without a copy where they are large.
// Every field is peer input and checked before use. Knows one descriptor at a time; the caller has the lock.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "cgx/status.h"
#include "cgx/wire_link.h"
#include "transport/socket/exchange.h"

namespace cgx::transport::socket {

/// What a read step came to.
struct Reading {
  enum class What {
    Blocked,  // nothing more to read now
    More,     // there may be more; completions are to be told first, or others have their turn
    Ended,    // the stream brings nothing more: `status` says why, `clean` whether that was a goodbye
    Broken,   // the peer broke the protocol, or our side failed: `status`
    TooLong,  // a send of ours does not fit what the peer has just announced: `misfit`, `status`
  };
  What what = What::Blocked;
  Status status;
  bool clean = false;
  Misfit misfit;
  bool announced = false;  // the peer posted receives: there may be something to send
};

class StreamReader {
 public:
  explicit StreamReader(std::size_t index) noexcept : index_(index) {}
  /// Reads what there is. `toTheEnd`: the stream is known to end, so a short read does not mean that there is nothing
  /// more.
  Reading step(int fd, bool toTheEnd, Exchange& exchange, Told& told);

 private:
  enum class Parse { NeedBytes, TellFirst, Stop };
  Parse parse(Exchange& exchange, Told& told);
  Reading readingOf(Reading::What what, Status status = {});
  bool takeHeader(Exchange& exchange);
  bool takeControl(Exchange& exchange, std::span<const std::byte> payload);
  bool takePosted(Exchange& exchange, std::span<const std::byte> payload);
  bool finishData(Exchange& exchange, Told& told);
  bool stop(Reading::What what, Status status);
  bool checkHeader() const;
  std::size_t available() const noexcept { return end_ - begin_; }

  std::size_t index_;
  wire::Frame frame_{};
  bool inFrame_ = false;          // frame_ is valid and its payload not complete
  std::byte* payload_ = nullptr;  // of a data frame: where it goes
  std::size_t payloadDone_ = 0;
  Reading result_;  // set by stop
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  // Takes several small messages, or the next header behind a large payload, in one call.
  std::array<std::byte, 8192> inbox_;
};

}  // namespace cgx::transport::socket
