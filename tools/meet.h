// The first half of a rendezvous: sockets, addresses, who is who. Used by rendezvous.cc only.
#pragma once

#include <vector>

#include "rendezvous.h"
#include "rendezvous_link.h"

namespace cgx::tool {

/// Rank 0: one link for each other rank, in rank order, once all agree; on disagreement every rank is told.
Result<std::vector<Link>> gatherRanks(const Meeting& meeting);
/// Everyone else: dials rank 0 until it answers or the time is up; returns when rank 0 says that all ranks are there.
Result<Link> joinRoot(const Meeting& meeting);

}  // namespace cgx::tool
