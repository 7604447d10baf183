// What came of an operation: memory rules, hashes, numbers, and which violation a wrong number is.
#include <algorithm>
#include <cstring>

#include "support/nccl_host/coll_op.h"

namespace cgx::host {
namespace {

// Padding spoils at most the coding unit that straddles the end of the data; no plausible unit is larger than this many
// elements.
constexpr std::size_t kStraddle = 1024;

}  // namespace

const Limits& CollOp::limits() const { return comm_.rank().limits(); }

void CollOp::onProgressThread(const std::function<void()>& work) { comm_.progress().run(work); }

void CollOp::reportStuck() {
  comm_.rank().report(Violation::NeverCompletes,
                      name() + ": " + std::to_string(completed_) + " of " + std::to_string(calls_.size()) +
                          " calls done, " + std::to_string(inFlight()) + " in flight, " +
                          (next_ < calls_.size() && inFlight() == 0 ? "refused" : "waiting"));
}

void CollOp::reportFailure() {
  if (failed_ && error_ != ncclSuccess)
    comm_.rank().report(Violation::CallFails, name() + ": iallreduce or test returned " + std::to_string(error_));
}

void CollOp::finish() {
  if (failed_ && !send_.valid()) return;
  const bool inPlace = spec_.buffers == Buffers::RegisteredInPlace;
  const GuardedBuffer& out = inPlace ? send_ : recv_;
  if (!failed_) {
    result_.assign(out.data(), out.data() + out.size());
    if (!send_.canaryIntact() || (!inPlace && !recv_.canaryIntact()))
      comm_.rank().report(Violation::WritesOutsideBuffer, name() + ": a byte beside a user's buffer has changed");
  }
  if (!staged()) {
    if (!inPlace) comm_.deregisterUser(recvHandle_);
    comm_.deregisterUser(sendHandle_);
    // The application may free its buffers as soon as the operation is done.
    if (!inPlace) send_.setReadOnly(false);
    send_.retire(Violation::TouchesUserBufferAfterDone, "a user's send buffer after the operation");
    if (!inPlace) recv_.retire(Violation::TouchesUserBufferAfterDone, "a user's receive buffer after the operation");
  }
  if (!failed_) checkResult();
}

void CollOp::checkResult() {
  Rank& rank = comm_.rank();
  const auto& members = comm_.members();
  if (spec_.op != Op::ReduceScatter) rank.hash(name(), XXH3_128bits(result_.data(), result_.size()));
  if (!spec_.verify) return;
  if (spec_.op == Op::AllGather) {
    std::vector<std::byte> want(perRankBytes_ * members.size());
    for (std::size_t i = 0; i < members.size(); ++i)
      fillInput(spec_.dtype, spec_.fill, spec_.seed, members[i], number_,
                {want.data() + i * perRankBytes_, perRankBytes_});
    if (want != result_) rank.report(Violation::WrongSum, name() + ": not the ranks' bytes in order");
    return;
  }
  const std::size_t n = spec_.op == Op::ReduceScatter ? spec_.count * members.size() : spec_.count;
  Sums sums = sumOf(spec_.dtype, spec_.fill, spec_.seed, members, number_, n);
  if (spec_.op == Op::ReduceScatter) {
    const auto begin = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(comm_.index()) * spec_.count);
    sums.exact = {sums.exact.begin() + begin, sums.exact.begin() + begin + static_cast<std::ptrdiff_t>(spec_.count)};
    const auto bytes = begin * static_cast<std::ptrdiff_t>(width_);
    sums.rankOrder = {sums.rankOrder.begin() + bytes,
                      sums.rankOrder.begin() + bytes + static_cast<std::ptrdiff_t>(perRankBytes_)};
  }
  const Misses misses = compare(sums, spec_.op == Op::ReduceScatter ? exactly() : spec_.bound, result_);
  if (misses.count > 0) blame(sums, misses);
}

void CollOp::blame(const Sums& sums, const Misses& misses) {
  const std::size_t count = sums.exact.size();
  const bool padded =
      staged() && !calls_.empty() && calls_.back().validRecv < calls_.back().callBytes && spec_.op == Op::AllReduce;
  const bool atTheEnd = misses.first + kStraddle >= count && count > 0;
  const Violation violation = padded && atTheEnd ? Violation::DegradesDataNextToPadding : Violation::WrongSum;
  std::string text =
      name() + ": " + std::to_string(misses.count) + " of " + std::to_string(count) + " elements; " + misses.text;
  if (violation == Violation::DegradesDataNextToPadding)
    text += "; elements " + std::to_string(misses.first) + " to " + std::to_string(misses.last) +
            ", padding begins at " + std::to_string(count);
  comm_.rank().report(violation, text);
}

}  // namespace cgx::host
