// Bodies for run(): one situation that NCCL brings a collnet plugin into, each. To be read before writing a new one.
#pragma once

#include <functional>
#include <vector>

#include "support/nccl_host/coll_op.h"

namespace cgx::host {

using Body = std::function<void(Rank&)>;

/// Small operations whose slots still hold what large ones of `padding` left there, for every type. `inject`: the
/// stand-in writes the padding itself, where NCCL would only have left it.
Body stalePadding(CommOptions options, Fill padding, Bound bound, bool inject = false);

/// A world communicator and one of `members` connect at the same time, and work at the same time in two progress
/// threads.
Body twoCommunicators(CommOptions options, std::vector<OpSpec> operations, std::vector<int> members);

/// A child with its parent's staging; operations of both in turn on one progress thread.
Body splitShared(CommOptions options, std::vector<OpSpec> operations);

/// All ranks stop in the middle of an operation, at different points, and destroy the communicator.
Body abortInFlight(CommOptions options, OpSpec operation);

/// Rank `who` connects as `how`; the others must fail, and the same ranks must then be able to connect.
Body failingConnect(CommOptions options, int who, ConnectAs how);

/// Rank `who` is killed in the middle of an operation; the others must see an error within `seconds` and close at once.
Body peerDies(CommOptions options, int who, double seconds = 5);

/// Posts without testing: at least `atLeast` calls must be accepted; then drains, and once more.
Body fillsThePipeline(int atLeast);

/// Findings for hashes that two runs do not share.
std::vector<Finding> reproduced(const Verdict& first, const Verdict& second);

}  // namespace cgx::host
