// How the ranks of `cgx perf` and `cgx doctor` find each other, swap plugin handles and tell each other of failures: a
// star of TCP connections to rank 0, outside the plugin as NCCL's own bootstrap is. Knows text and bytes; knows no
// plugin.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cgx/status.h"

namespace cgx::tool {

struct Meeting {
  int rank = 0;
  int ranks = 1;
  std::string host;       // of rank 0
  int port = 0;           // of rank 0
  int listenFd = -1;      // rank 0: a listening socket to use (and close) instead of opening one; -1: open one
  std::string agreement;  // must be equal on all ranks: what is run; the error shows both
  double timeoutSeconds = 60;
};

/// Rank 0 holds a connection to everyone, everyone else one to rank 0. Used by one thread.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  /// Everybody's `mine`, by rank. Waits for ever for ranks that are alive; a rank that has gone or failed ends it with
  /// Code::Remote naming that rank.
  virtual Result<std::vector<std::string>> allGather(std::string_view mine) = 0;

  /// Ok while nobody is known to have failed or gone. Never blocks.
  virtual Status check() = 0;

  /// Tells the others that this rank gives up. Returns what this rank should print: on rank 0 the most telling error
  /// that anybody had (a rank that vanished explains the others' errors), elsewhere nothing when rank 0 has taken note.
  /// Takes up to 3 s.
  virtual std::optional<Status> giveUp(const Status& why) = 0;
};

/// Returns when all ranks are there and agree, or with an error that names the missing ranks, the port in use, the rank
/// count that differs; bounded by the timeout. Connections from strangers are dropped.
Result<std::unique_ptr<Rendezvous>> meet(const Meeting& meeting);

/// A listening socket on a free port of `host`, close-on-exec; sets *port. For local ranks, whose launcher hands it to
/// rank 0.
Result<int> listenAt(const std::string& host, int* port);

}  // namespace cgx::tool
