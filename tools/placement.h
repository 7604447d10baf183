// Which rank this process is and where rank 0 waits: from flags, or from what torchrun, mpirun or srun put into the
// environment. Pure but for the look-ups it is given.
#pragma once

#include <optional>
#include <string>

#include "cgx/settings.h"
#include "cgx/status.h"

namespace cgx::tool {

struct Placement {
  int rank = 0;
  int ranks = 1;
  std::string host;    // of rank 0
  int port = 0;        // of rank 0
  int listenFd = -1;   // rank 0 under our own launcher: the rendezvous's listening socket
  std::string origin;  // "torchrun", "mpirun", "srun", "flags": for messages
};

/// "host:port" or "[v6]:port".
Status parseRoot(const std::string& text, std::string* host, int* port);

/// Of --rank, --nranks, --root and, from our own launcher, --root-fd (else -1).
Result<Placement> placementFromFlags(int rank, int ranks, const std::string& root, int rootFd);

/// Nothing when no launcher is there. `root` (may be empty) overrides the launcher's idea of rank 0's address;
/// `localId` is a number that only the ranks of one launch on one machine share (their parent process): ports are
/// derived from it or from the job's id.
Result<std::optional<Placement>> placementFromLauncher(const Lookup& lookup, const std::string& root, long localId);

/// First host of a Slurm list: "node[07-09,12],gpu3" -> "node07".
std::string firstHost(const std::string& nodeList);

}  // namespace cgx::tool
