// How N ranks that know each other's handles become a full mesh on which all of them agree, or on none.
// Knows who dials whom and the vote; knows nothing of operations.
#pragma once

#include <memory>
#include <vector>

#include "cgx/collective.h"
#include "plan.h"

namespace cgx::collective {

/// A mesh that every rank has said yes to.
struct Mesh {
  std::vector<std::unique_ptr<transport::Connection>> connections;  // by rank; the own place is empty
  std::uint64_t ordinal = 0;                                        // rank 0's, the same on every rank
};

/// Blocks until every rank has a verdict, at most Settings::connectTimeout and a grace of kVerdictGrace. Every rank
/// reports to rank 0, which alone decides and tells all: so success is unanimous unless a host dies between the verdict
/// and its arrival.
Result<Mesh> connectMesh(const ConnectSpec& spec, const Limits& limits);

}  // namespace cgx::collective
